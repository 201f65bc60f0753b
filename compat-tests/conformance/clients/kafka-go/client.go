// kafka-go behind the driver.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/scram"
)

const (
	clientName   = "kafka-go"
	clientModule = "github.com/segmentio/kafka-go"
)

// patience is for what kafka-go leaves to its application to try again.
const (
	patience     = 30 * time.Second
	retryBackoff = 100 * time.Millisecond
)

// sessionTimeout is less than a scenario's patience: with its connection a member loses its id, and what it was holds up
// the group's next generation until it has expired.
const sessionTimeout = 10 * time.Second

var ctx = context.Background()

func errorCode(err error) int {
	var known kafka.Error
	if errors.As(err, &known) {
		return int(known)
	}
	return -1
}

// retriable errors are those that Kafka calls so, and lost connections.
func retriable(err error) bool {
	var known kafka.Error
	return err != nil && (!errors.As(err, &known) || known.Temporary())
}

// cluster is where the brokers are and, if they ask, who the client is there.  kafka-go has no client that all its parts
// share: each of them is told.
type cluster struct {
	addresses []string
	tls       *tls.Config
	login     sasl.Mechanism
}

func connected(r Request) (made cluster, err error) {
	made.addresses = r.Addresses()
	if r.Security == nil {
		return made, nil
	}
	if made.tls, err = r.Security.TLS(); err == nil && r.Security.Mechanism != "" {
		made.login, err = scram.Mechanism(scram.SHA512, r.Security.User, r.Security.Password)
	}
	return made, err
}

// transport is what writers and requests connect with.
func (c cluster) transport() *kafka.Transport {
	return &kafka.Transport{MetadataTTL: time.Second, TLS: c.tls, SASL: c.login}
}

// dialer is what readers and members of groups connect with.
func (c cluster) dialer() *kafka.Dialer {
	made := *kafka.DefaultDialer
	made.TLS, made.SASLMechanism = c.tls, c.login
	return &made
}

// ask makes a request by a client of its own: kafka-go goes by the metadata that a client had some seconds ago.
func ask[Q, A any](
	c cluster, call func(*kafka.Client, context.Context, *Q) (*A, error), request Q,
) (*A, error) {
	transport := c.transport()
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(c.addresses...), Timeout: patience, Transport: transport}
	return call(client, ctx, &request)
}

var codecs = map[string]kafka.Compression{
	"gzip":   kafka.Gzip,
	"snappy": kafka.Snappy,
	"lz4":    kafka.Lz4,
	"zstd":   kafka.Zstd,
}

func newBalancer(name string) kafka.Balancer {
	switch name {
	case "hash":
		return &kafka.Hash{}
	case "reference-hash":
		return &kafka.ReferenceHash{}
	case "crc32":
		return kafka.CRC32Balancer{}
	case "murmur2":
		return kafka.Murmur2Balancer{}
	}
	return &kafka.RoundRobin{}
}

// outgoing travels with a message as its WriterData.
type outgoing struct {
	partition *int32
	delivery  Delivery
}

// chooser takes the partition that a scenario names, and leaves the other messages to a balancer of the client's.
type chooser struct{ kafka.Balancer }

func (c chooser) Balance(message kafka.Message, partitions ...int) int {
	if named := message.WriterData.(*outgoing).partition; named != nil {
		return int(*named)
	}
	return c.Balancer.Balance(message, partitions...)
}

type producer struct {
	*kafka.Writer
	patience time.Duration
}

func newProducer(r Request) (Producer, error) {
	cluster, err := connected(r)
	if err != nil {
		return nil, err
	}
	made := &producer{patience: patience}
	made.Writer = &kafka.Writer{
		Addr:                   kafka.TCP(cluster.addresses...),
		Transport:              cluster.transport(),
		Balancer:               chooser{newBalancer(r.Partitioner)},
		RequiredAcks:           kafka.RequiredAcks(r.Acks),
		Compression:            codecs[r.Codec],
		BatchBytes:             int64(r.RequestBytesMax),
		BatchTimeout:           max(time.Duration(r.LingerMs)*time.Millisecond, time.Millisecond),
		AllowAutoTopicCreation: true,
		Completion:             settle,
	}
	if r.PatienceMs > 0 {
		made.patience = time.Duration(r.PatienceMs) * time.Millisecond
	}
	return made, nil
}

// settle is told by kafka-go what became of a batch.
func settle(messages []kafka.Message, err error) {
	for _, message := range messages {
		sent := message.WriterData.(*outgoing)
		sent.delivery = Delivery{0, int32(message.Partition), message.Offset}
		if err != nil {
			sent.delivery = Delivery{errorCode(err), -1, -1}
		}
	}
}

// Produce tries again what kafka-go leaves to its application: topics that appear, brokers that come back.
func (p *producer) Produce(records []Sent) []Delivery {
	sent := make([]*outgoing, len(records))
	waiting := make([]kafka.Message, len(records))
	for i, record := range records {
		sent[i] = &outgoing{partition: record.Partition}
		waiting[i] = message(record)
		waiting[i].WriterData = sent[i]
	}
	waiting = p.attempt(waiting)
	for deadline := time.Now().Add(p.patience); len(waiting) > 0 && time.Now().Before(deadline); {
		time.Sleep(retryBackoff)
		waiting = p.attempt(waiting)
	}
	deliveries := make([]Delivery, len(sent))
	for i, each := range sent {
		deliveries[i] = each.delivery
	}
	return deliveries
}

// attempt returns what may be tried again.  Without an error for each message none was sent.
func (p *producer) attempt(messages []kafka.Message) (again []kafka.Message) {
	err := p.WriteMessages(ctx, messages...)
	var each kafka.WriteErrors
	sent := errors.As(err, &each)
	if err != nil && !sent {
		settle(messages, err)
	}
	for i, message := range messages {
		if (sent && retriable(each[i])) || (!sent && retriable(err)) {
			again = append(again, message)
		}
	}
	return again
}

func message(sent Sent) kafka.Message {
	made := kafka.Message{Topic: sent.Topic, Key: sent.Key, Value: sent.Value}
	for _, header := range sent.Headers {
		made.Headers = append(made.Headers, kafka.Header{Key: header.Key, Value: header.Value})
	}
	if sent.TimestampMs != nil {
		made.Time = time.UnixMilli(*sent.TimestampMs)
	}
	return made
}

func (p *producer) Begin() error { return notOffered("transactions") }

func (p *producer) SendOffsets([]Offset, Consumer) error { return notOffered("transactions") }

func (p *producer) End(bool) error { return notOffered("transactions") }

// consumer has a reader for each partition, which a scenario or the group's generation gave it.
type consumer struct {
	cluster    cluster
	group      kafka.ConsumerGroupConfig
	reading    kafka.ReaderConfig
	member     *kafka.ConsumerGroup
	left       sync.WaitGroup
	generation *kafka.Generation
	stops      map[TopicPartition]func()
	paused     map[TopicPartition]<-chan kafka.Message
	inbox[kafka.Message]
}

func newConsumer(r Request) (Consumer, error) {
	cluster, err := connected(r)
	if err != nil {
		return nil, err
	}
	made := &consumer{
		cluster: cluster,
		group: kafka.ConsumerGroupConfig{
			ID:                r.Group,
			Brokers:           cluster.addresses,
			Dialer:            cluster.dialer(),
			HeartbeatInterval: 100 * time.Millisecond,
			SessionTimeout:    sessionTimeout,
			JoinGroupBackoff:  retryBackoff,
			StartOffset:       kafka.FirstOffset,
		},
		reading: kafka.ReaderConfig{
			Brokers:               cluster.addresses,
			Dialer:                cluster.dialer(),
			MaxBytes:              int(r.PartitionFetchBytes),
			MaxWait:               time.Duration(r.FetchWaitMs) * time.Millisecond,
			OffsetOutOfRangeError: true,
		},
		stops:  map[TopicPartition]func(){},
		paused: map[TopicPartition]<-chan kafka.Message{},
		inbox:  newInbox(received),
	}
	if r.OffsetReset == "latest" {
		made.group.StartOffset = kafka.LastOffset
	}
	if r.Isolation == "read_committed" {
		made.reading.IsolationLevel = kafka.ReadCommitted
	}
	balancers := map[string]kafka.GroupBalancer{
		"range":      kafka.RangeGroupBalancer{},
		"roundrobin": kafka.RoundRobinGroupBalancer{},
	}
	if balancer := balancers[r.Assignor]; balancer != nil {
		made.group.GroupBalancers = []kafka.GroupBalancer{balancer}
	}
	return made, nil
}

func (c *consumer) Subscribe(topic string) (err error) {
	c.group.Topics = []string{topic}
	if c.member, err = kafka.NewConsumerGroup(c.group); err != nil {
		return err
	}
	c.left.Go(func() {
		for {
			generation, err := c.member.Next(ctx)
			if errors.Is(err, kafka.ErrGroupClosed) {
				return
			}
			if err == nil {
				c.begin(generation)
			}
		}
	})
	return nil
}

func (c *consumer) begin(generation *kafka.Generation) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.drop(c.generation)
	c.generation = generation
	for topic, partitions := range generation.Assignments {
		for _, assigned := range partitions {
			c.open(TopicPartition{topic, int32(assigned.ID)}, assigned.Offset)
		}
	}
	generation.Start(func(ctx context.Context) {
		<-ctx.Done()
		c.mutex.Lock()
		defer c.mutex.Unlock()
		c.drop(generation)
	})
}

// drop gives the generation's partitions up, unless that was done before.
func (c *consumer) drop(generation *kafka.Generation) {
	if generation == nil || c.generation != generation {
		return
	}
	c.generation = nil
	for at := range c.stops {
		c.close(at)
	}
	c.revocations++
}

func (c *consumer) Assign(partitions []TopicPartition) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, at := range partitions {
		c.open(at, c.group.StartOffset)
	}
	return nil
}

func (c *consumer) open(at TopicPartition, offset int64) {
	config := c.reading
	config.Topic, config.Partition = at.Topic, int(at.Partition)
	reader := kafka.NewReader(config)
	reader.SetOffset(offset)
	ctx, stop := context.WithCancel(ctx)
	messages := make(chan kafka.Message)
	go c.pump(ctx, reader, messages)
	c.sources[at] = messages
	c.stops[at] = func() {
		stop()
		go reader.Close() // which waits for the fetch that is under way
	}
}

func (c *consumer) close(at TopicPartition) {
	if stop := c.stops[at]; stop != nil {
		stop()
	}
	delete(c.stops, at)
	delete(c.sources, at)
	delete(c.paused, at)
}

func (c *consumer) pump(ctx context.Context, reader *kafka.Reader, messages chan<- kafka.Message) {
	for ctx.Err() == nil {
		message, err := reader.FetchMessage(ctx)
		if errors.Is(err, kafka.OffsetOutOfRange) {
			// A reader leaves resetting to its application.
			reader.SetOffset(c.group.StartOffset)
		}
		if err != nil {
			continue
		}
		select {
		case messages <- message:
		case <-ctx.Done():
		}
	}
}

func received(message kafka.Message) Received {
	headers := []Header{}
	for _, header := range message.Headers {
		headers = append(headers, Header{header.Key, header.Value})
	}
	return Received{
		message.Topic, int32(message.Partition), message.Offset, message.Key, message.Value,
		headers, message.Time.UnixMilli(), nil,
	}
}

func (c *consumer) Assignment() (assigned []TopicPartition, err error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for at := range c.stops {
		assigned = append(assigned, at)
	}
	return assigned, nil
}

func (c *consumer) Seek(at TopicPartition, offset int64) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.close(at)
	c.open(at, offset)
	return nil
}

func (c *consumer) SeekToBeginning(at TopicPartition) error { return c.Seek(at, kafka.FirstOffset) }

// SeekToEnd resolves the end itself: kafka-go would do so later, past what is sent in the meantime.
func (c *consumer) SeekToEnd(at TopicPartition) error {
	ends, err := c.BeginningAndEnd(at)
	if err != nil {
		return err
	}
	return c.Seek(at, ends[1])
}

func (c *consumer) BeginningAndEnd(at TopicPartition) (found [2]int64, err error) {
	partition := int(at.Partition)
	listed, err := listOffsets(c.cluster, at, kafka.FirstOffsetOf(partition), kafka.LastOffsetOf(partition))
	return [2]int64{listed.FirstOffset, listed.LastOffset}, err
}

func listOffsets(cluster cluster, at TopicPartition, wanted ...kafka.OffsetRequest) (kafka.PartitionOffsets, error) {
	request := kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{at.Topic: wanted}}
	listed, err := ask(cluster, (*kafka.Client).ListOffsets, request)
	if err != nil {
		return kafka.PartitionOffsets{}, err
	}
	found := listed.Topics[at.Topic][0]
	return found, found.Error
}

func offsetForTime(cluster cluster, at TopicPartition, timestampMs int64) (int64, error) {
	wanted := kafka.TimeOffsetOf(int(at.Partition), time.UnixMilli(timestampMs))
	listed, err := listOffsets(cluster, at, wanted)
	for offset := range listed.Offsets {
		return offset, err
	}
	return -1, err
}

func (c *consumer) OffsetForTime(at TopicPartition, timestampMs int64) (*int64, error) {
	offset, err := offsetForTime(c.cluster, at, timestampMs)
	if err != nil || offset < 0 {
		return nil, err
	}
	return &offset, nil
}

// Pause stops taking messages of a partition: its reader waits then.
func (c *consumer) Pause(at TopicPartition) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.paused[at] = c.sources[at]
	delete(c.sources, at)
	return nil
}

func (c *consumer) Resume(at TopicPartition) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.sources[at] = c.paused[at]
	delete(c.paused, at)
	return nil
}

// Commit is the generation's where there is a member, and a client's where partitions are assigned.
func (c *consumer) Commit(offsets []Offset) error {
	offsets = c.uncommitted(offsets)
	c.mutex.Lock()
	generation := c.generation
	c.mutex.Unlock()
	if generation == nil {
		return commitAlone(c.cluster, c.group.ID, offsets)
	}
	wanted := map[string]map[int]int64{}
	for _, offset := range offsets {
		if wanted[offset.Topic] == nil {
			wanted[offset.Topic] = map[int]int64{}
		}
		wanted[offset.Topic][int(offset.Partition)] = offset.Offset
	}
	return generation.CommitOffsets(wanted)
}

func commitAlone(cluster cluster, group string, offsets []Offset) error {
	wanted := map[string][]kafka.OffsetCommit{}
	for _, offset := range offsets {
		commit := kafka.OffsetCommit{Partition: int(offset.Partition), Offset: offset.Offset, Metadata: offset.Metadata}
		wanted[offset.Topic] = append(wanted[offset.Topic], commit)
	}
	request := kafka.OffsetCommitRequest{GroupID: group, GenerationID: -1, Topics: wanted}
	committed, err := ask(cluster, (*kafka.Client).OffsetCommit, request)
	if err != nil {
		return err
	}
	for _, partitions := range committed.Topics {
		for _, partition := range partitions {
			err = errors.Join(err, partition.Error)
		}
	}
	return err
}

func (c *consumer) Committed(at TopicPartition) (*Offset, error) {
	fetched, err := fetchOffsets(c.cluster, c.group.ID, map[string][]int{at.Topic: {int(at.Partition)}})
	if err != nil || len(fetched) == 0 {
		return nil, err
	}
	return &fetched[0], nil
}

// fetchOffsets fetches those of every partition where no topics are named.
func fetchOffsets(cluster cluster, group string, topics map[string][]int) (found []Offset, err error) {
	request := kafka.OffsetFetchRequest{GroupID: group, Topics: topics}
	fetched, err := ask(cluster, (*kafka.Client).OffsetFetch, request)
	if err != nil {
		return nil, err
	}
	for topic, partitions := range fetched.Topics {
		for _, each := range partitions {
			if each.CommittedOffset >= 0 {
				at := TopicPartition{topic, int32(each.Partition)}
				found = append(found, Offset{at, each.CommittedOffset, each.Metadata})
			}
		}
	}
	return found, fetched.Error
}

func (c *consumer) Close() error {
	if c.member != nil {
		c.member.Close()
		c.left.Wait()
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for at := range c.stops {
		c.close(at)
	}
	return nil
}

type admin struct{ cluster cluster }

func newAdmin(r Request) (Admin, error) {
	cluster, err := connected(r)
	return &admin{cluster}, err
}

func (a *admin) CreateTopic(r Request) error {
	topic := kafka.TopicConfig{Topic: r.Topic, NumPartitions: int(r.Count), ReplicationFactor: 1}
	for name, value := range r.Configs {
		topic.ConfigEntries = append(topic.ConfigEntries, kafka.ConfigEntry{ConfigName: name, ConfigValue: value})
	}
	request := kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{topic}}
	created, err := ask(a.cluster, (*kafka.Client).CreateTopics, request)
	if err != nil {
		return err
	}
	return created.Errors[r.Topic]
}

func (a *admin) DeleteTopic(topic string) error {
	request := kafka.DeleteTopicsRequest{Topics: []string{topic}}
	deleted, err := ask(a.cluster, (*kafka.Client).DeleteTopics, request)
	if err != nil {
		return err
	}
	return deleted.Errors[topic]
}

func (a *admin) Topics() (map[string]int, error) {
	metadata, err := ask(a.cluster, (*kafka.Client).Metadata, kafka.MetadataRequest{})
	if err != nil {
		return nil, err
	}
	found := map[string]int{}
	for _, topic := range metadata.Topics {
		found[topic.Name] = len(topic.Partitions)
	}
	return found, nil
}

func (a *admin) CreatePartitions(topic string, total int32) error {
	wanted := kafka.TopicPartitionsConfig{Name: topic, Count: total}
	request := kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{wanted}}
	created, err := ask(a.cluster, (*kafka.Client).CreatePartitions, request)
	if err != nil {
		return err
	}
	return created.Errors[topic]
}

func (a *admin) TopicConfigs(topic string) (map[string]*string, error) {
	wanted := kafka.DescribeConfigRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic}
	request := kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{wanted}}
	described, err := ask(a.cluster, (*kafka.Client).DescribeConfigs, request)
	if err != nil {
		return nil, err
	}
	found := map[string]*string{}
	for _, entry := range described.Resources[0].ConfigEntries {
		found[entry.ConfigName] = &entry.ConfigValue
	}
	return found, described.Resources[0].Error
}

func (a *admin) AlterConfigs(topic string, configs map[string]string) error {
	wanted := kafka.AlterConfigRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic}
	for name, value := range configs {
		wanted.Configs = append(wanted.Configs, kafka.AlterConfigRequestConfig{Name: name, Value: value})
	}
	request := kafka.AlterConfigsRequest{Resources: []kafka.AlterConfigRequestResource{wanted}}
	altered, err := ask(a.cluster, (*kafka.Client).AlterConfigs, request)
	if err != nil {
		return err
	}
	for _, failed := range altered.Errors {
		err = errors.Join(err, failed)
	}
	return err
}

func (a *admin) IncrementalAlterConfigs(topic string, changes []Change) error {
	operations := map[string]kafka.ConfigOperation{
		"SET":      kafka.ConfigOperationSet,
		"DELETE":   kafka.ConfigOperationDelete,
		"APPEND":   kafka.ConfigOperationAppend,
		"SUBTRACT": kafka.ConfigOperationSubtract,
	}
	wanted := kafka.IncrementalAlterConfigsRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic}
	for _, change := range changes {
		config := kafka.IncrementalAlterConfigsRequestConfig{
			Name: change.Name, ConfigOperation: operations[change.Operation],
		}
		if change.Value != nil {
			config.Value = *change.Value
		}
		wanted.Configs = append(wanted.Configs, config)
	}
	request := kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{wanted},
	}
	altered, err := ask(a.cluster, (*kafka.Client).IncrementalAlterConfigs, request)
	if err != nil {
		return err
	}
	return altered.Resources[0].Error
}

func (a *admin) DeleteRecords(TopicPartition, int64) (int64, error) {
	return 0, notOffered("delete records")
}

func (a *admin) Groups() (found []string, err error) {
	listed, err := ask(a.cluster, (*kafka.Client).ListGroups, kafka.ListGroupsRequest{})
	if err != nil {
		return nil, err
	}
	for _, group := range listed.Groups {
		found = append(found, group.GroupID)
	}
	return found, listed.Error
}

func (a *admin) DescribeGroup(group string) (GroupState, error) {
	request := kafka.DescribeGroupsRequest{GroupIDs: []string{group}}
	described, err := ask(a.cluster, (*kafka.Client).DescribeGroups, request)
	if err != nil {
		return GroupState{}, err
	}
	found := described.Groups[0]
	return GroupState{found.GroupState, len(found.Members)}, found.Error
}

func (a *admin) GroupOffsets(group string) ([]Offset, error) {
	return fetchOffsets(a.cluster, group, nil)
}

func (a *admin) AlterGroupOffset(group string, at TopicPartition, offset int64) error {
	return commitAlone(a.cluster, group, []Offset{{at, offset, ""}})
}

func (a *admin) DeleteGroup(group string) error {
	request := kafka.DeleteGroupsRequest{GroupIDs: []string{group}}
	deleted, err := ask(a.cluster, (*kafka.Client).DeleteGroups, request)
	if err != nil {
		return err
	}
	return deleted.Errors[group]
}

func (a *admin) DeleteGroupOffset(group string, at TopicPartition) error {
	request := kafka.OffsetDeleteRequest{
		GroupID: group, Topics: map[string][]int{at.Topic: {int(at.Partition)}},
	}
	deleted, err := ask(a.cluster, (*kafka.Client).OffsetDelete, request)
	if err != nil {
		return err
	}
	for _, partition := range deleted.Topics[at.Topic] {
		err = errors.Join(err, partition.Error)
	}
	return errors.Join(err, deleted.Error)
}

func (a *admin) ListOffset(at TopicPartition, spec string, timestampMs int64) (int64, error) {
	partition := int(at.Partition)
	switch spec {
	case "earliest":
		listed, err := listOffsets(a.cluster, at, kafka.FirstOffsetOf(partition))
		return listed.FirstOffset, err
	case "latest":
		listed, err := listOffsets(a.cluster, at, kafka.LastOffsetOf(partition))
		return listed.LastOffset, err
	}
	return offsetForTime(a.cluster, at, timestampMs)
}

func (a *admin) LogDirSizes() ([]Size, error) { return nil, notOffered("describe log dirs") }

func (a *admin) DescribeCluster() (Cluster, error) {
	metadata, err := ask(a.cluster, (*kafka.Client).Metadata, kafka.MetadataRequest{})
	if err != nil {
		return Cluster{}, err
	}
	cluster := Cluster{ClusterID: metadata.ClusterID, ControllerID: int32(metadata.Controller.ID)}
	for _, broker := range metadata.Brokers {
		cluster.Brokers = append(cluster.Brokers, Node{int32(broker.ID), broker.Host, int32(broker.Port)})
	}
	return cluster, nil
}

func (a *admin) Close() error { return nil }
