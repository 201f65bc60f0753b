// franz-go behind the driver.
package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const (
	clientName   = "franz-go"
	clientModule = "github.com/twmb/franz-go"
)

func errorCode(err error) int {
	var known *kerr.Error
	if errors.As(err, &known) {
		return int(known.Code)
	}
	var code coded
	if errors.As(err, &code) {
		return int(code)
	}
	return -1
}

var ctx = context.Background()

var codecs = map[string]kgo.CompressionCodec{
	"":       kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

// byHand marks a record whose partition the scenario names.
type byHand struct{}

// chooser takes the partition that a record names, and leaves the others to a partitioner of the client's.
type chooser struct{ kgo.Partitioner }

func (c chooser) ForTopic(topic string) kgo.TopicPartitioner {
	return topicChooser{c.Partitioner.ForTopic(topic)}
}

type topicChooser struct{ kgo.TopicPartitioner }

func (c topicChooser) RequiresConsistency(r *kgo.Record) bool {
	return r.Context.Value(byHand{}) != nil || c.TopicPartitioner.RequiresConsistency(r)
}

func (c topicChooser) Partition(r *kgo.Record, n int) int {
	if r.Context.Value(byHand{}) != nil {
		return int(r.Partition)
	}
	return c.TopicPartitioner.Partition(r, n)
}

// connected is where the brokers are and, if they ask, who the client is there.
func connected(r Request) ([]kgo.Opt, error) {
	options := []kgo.Opt{kgo.SeedBrokers(r.Addresses()...)}
	if r.Security == nil {
		return options, nil
	}
	config, err := r.Security.TLS()
	if err != nil {
		return nil, err
	}
	options = append(options, kgo.DialTLSConfig(config))
	if r.Security.Mechanism != "" {
		auth := scram.Auth{User: r.Security.User, Pass: r.Security.Password}
		options = append(options, kgo.SASL(auth.AsSha512Mechanism()))
	}
	return options, nil
}

type producer struct{ *kgo.Client }

func newProducer(r Request) (Producer, error) {
	var partitioner kgo.Partitioner = chooser{kgo.StickyKeyPartitioner(nil)}
	if r.Partitioner == "uniform-bytes" {
		partitioner = kgo.UniformBytesPartitioner(64<<10, true, true, nil)
	}
	connection, err := connected(r)
	if err != nil {
		return nil, err
	}
	options := append(connection,
		kgo.AllowAutoTopicCreation(),
		kgo.ProducerBatchCompression(codecs[r.Codec]),
		kgo.ProducerLinger(time.Duration(r.LingerMs) * time.Millisecond),
		kgo.ProducerBatchMaxBytes(r.RequestBytesMax),
		kgo.RecordPartitioner(partitioner),
	)
	acks := map[int]kgo.Acks{0: kgo.NoAck(), 1: kgo.LeaderAck(), -1: kgo.AllISRAcks()}[r.Acks]
	options = append(options, kgo.RequiredAcks(acks))
	if r.Idempotent != nil && !*r.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	if r.PatienceMs > 0 {
		patience := time.Duration(r.PatienceMs) * time.Millisecond
		options = append(options, kgo.RecordDeliveryTimeout(max(patience, time.Second)), kgo.UnknownTopicRetries(1))
	}
	if r.TransactionalID != "" {
		options = append(options, kgo.TransactionalID(r.TransactionalID))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	if r.TransactionalID != "" {
		if _, _, err := client.ProducerID(ctx); err != nil {
			client.Close()
			return nil, err
		}
	}
	return &producer{client}, nil
}

func (p *producer) Produce(records []Sent) []Delivery {
	deliveries := make([]Delivery, len(records))
	var wait sync.WaitGroup
	for i, sent := range records {
		wait.Add(1)
		p.Client.Produce(ctx, record(sent), func(r *kgo.Record, err error) {
			defer wait.Done()
			if err != nil {
				deliveries[i] = Delivery{errorCode(err), -1, -1}
			} else {
				deliveries[i] = Delivery{0, r.Partition, r.Offset}
			}
		})
	}
	p.Flush(ctx)
	wait.Wait()
	return deliveries
}

func record(sent Sent) *kgo.Record {
	r := &kgo.Record{Topic: sent.Topic, Key: sent.Key, Value: sent.Value, Context: ctx}
	for _, header := range sent.Headers {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: header.Key, Value: header.Value})
	}
	if sent.TimestampMs != nil {
		r.Timestamp = time.UnixMilli(*sent.TimestampMs)
	}
	if sent.Partition != nil {
		r.Partition = *sent.Partition
		r.Context = context.WithValue(ctx, byHand{}, true)
	}
	return r
}

func (p *producer) Begin() error { return p.BeginTransaction() }

func (p *producer) SendOffsets([]Offset, Consumer) error { return notOffered("send offsets") }

func (p *producer) End(commit bool) error {
	return p.EndTransaction(ctx, kgo.TransactionEndTry(commit))
}

func (p *producer) Close() error {
	p.Client.Close()
	return nil
}

// consumer makes its client with the first subscription or assignment, because franz-go wants to know then.
type consumer struct {
	options     []kgo.Opt
	group       []kgo.Opt
	groupID     string
	reset       kgo.Offset
	client      *kgo.Client
	admin       *kadm.Client
	mutex       sync.Mutex
	subscribed  bool
	assigned    map[TopicPartition]bool
	positions   map[TopicPartition]int64
	revocations int
}

func newConsumer(r Request) (Consumer, error) {
	c := &consumer{
		groupID:   r.Group,
		reset:     kgo.NewOffset().AtStart(),
		assigned:  map[TopicPartition]bool{},
		positions: map[TopicPartition]int64{},
	}
	if r.OffsetReset == "latest" {
		c.reset = kgo.NewOffset().AtEnd()
	}
	connection, err := connected(r)
	if err != nil {
		return nil, err
	}
	c.options = append(slices.Clone(connection), kgo.ConsumeResetOffset(c.reset))
	if r.FetchWaitMs > 0 {
		c.options = append(c.options, kgo.FetchMaxWait(time.Duration(r.FetchWaitMs)*time.Millisecond))
	}
	if r.PartitionFetchBytes > 0 {
		c.options = append(c.options, kgo.FetchMaxPartitionBytes(r.PartitionFetchBytes))
	}
	if r.Isolation == "read_committed" {
		c.options = append(c.options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	c.group = groupOptions(c, r)
	client, err := kgo.NewClient(connection...)
	if err != nil {
		return nil, err
	}
	c.admin = kadm.NewClient(client)
	return c, nil
}

func groupOptions(c *consumer, r Request) []kgo.Opt {
	options := []kgo.Opt{
		kgo.ConsumerGroup(r.Group),
		kgo.HeartbeatInterval(100 * time.Millisecond),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(c.onAssigned),
		kgo.OnPartitionsRevoked(c.onRevoked),
		kgo.OnPartitionsLost(c.onRevoked),
	}
	if r.InstanceID != "" {
		options = append(options, kgo.InstanceID(r.InstanceID))
	}
	balancers := map[string]kgo.GroupBalancer{
		"range":              kgo.RangeBalancer(),
		"roundrobin":         kgo.RoundRobinBalancer(),
		"sticky":             kgo.StickyBalancer(),
		"cooperative-sticky": kgo.CooperativeStickyBalancer(),
	}
	if r.Assignor == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	} else if r.Assignor != "" {
		options = append(options, kgo.Balancers(balancers[r.Assignor]))
	}
	return options
}

func (c *consumer) onAssigned(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for topic, partitions := range topics {
		for _, partition := range partitions {
			c.assigned[TopicPartition{topic, partition}] = true
		}
	}
}

func (c *consumer) onRevoked(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for topic, partitions := range topics {
		for _, partition := range partitions {
			delete(c.assigned, TopicPartition{topic, partition})
		}
	}
	if len(topics) > 0 {
		c.revocations++
	}
}

func (c *consumer) Subscribe(topic string) (err error) {
	c.subscribed = true
	c.client, err = kgo.NewClient(append(append(c.options, c.group...), kgo.ConsumeTopics(topic))...)
	return err
}

func (c *consumer) Assign(partitions []TopicPartition) (err error) {
	from := map[string]map[int32]kgo.Offset{}
	for _, at := range partitions {
		if from[at.Topic] == nil {
			from[at.Topic] = map[int32]kgo.Offset{}
		}
		from[at.Topic][at.Partition] = c.reset
		c.assigned[at] = true
	}
	c.client, err = kgo.NewClient(append(c.options, kgo.ConsumePartitions(from))...)
	return err
}

func (c *consumer) Assignment() ([]TopicPartition, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	var found []TopicPartition
	for at := range c.assigned {
		found = append(found, at)
	}
	return found, nil
}

func (c *consumer) Poll(timeoutMs int) (Polled, error) {
	waiting, cancel := context.WithTimeout(ctx, time.Duration(timeoutMs)*time.Millisecond)
	defer cancel()
	fetches := c.client.PollRecords(waiting, 500)
	for _, failed := range fetches.Errors() {
		// Whatever else it is, waiting or a lost connection, franz-go tries again.
		var known *kerr.Error
		if errors.As(failed.Err, &known) && !known.Retriable {
			return Polled{}, failed.Err
		}
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	polled := Polled{Revocations: c.revocations}
	fetches.EachRecord(func(r *kgo.Record) {
		polled.Records = append(polled.Records, received(r))
		c.positions[TopicPartition{r.Topic, r.Partition}] = r.Offset + 1
	})
	return polled, nil
}

func received(r *kgo.Record) Received {
	headers := []Header{}
	for _, header := range r.Headers {
		headers = append(headers, Header{header.Key, header.Value})
	}
	kind := int(r.Attrs.TimestampType())
	return Received{r.Topic, r.Partition, r.Offset, r.Key, r.Value, headers, r.Timestamp.UnixMilli(), &kind}
}

func (c *consumer) goTo(at TopicPartition, offset kgo.Offset) error {
	c.client.RemoveConsumePartitions(map[string][]int32{at.Topic: {at.Partition}})
	c.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{at.Topic: {at.Partition: offset}})
	delete(c.positions, at)
	return nil
}

func (c *consumer) Seek(at TopicPartition, offset int64) error {
	return c.goTo(at, kgo.NewOffset().At(offset))
}

func (c *consumer) SeekToBeginning(at TopicPartition) error {
	return c.goTo(at, kgo.NewOffset().AtStart())
}

// SeekToEnd resolves the end itself: franz-go would do so later, past what is sent in the meantime.
func (c *consumer) SeekToEnd(at TopicPartition) error {
	ends, err := c.BeginningAndEnd(at)
	if err != nil {
		return err
	}
	return c.Seek(at, ends[1])
}

// Position is of what was polled; franz-go tells no other.
func (c *consumer) Position(at TopicPartition) (int64, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if position, polled := c.positions[at]; polled {
		return position, nil
	}
	return -1, nil
}

func (c *consumer) BeginningAndEnd(at TopicPartition) (found [2]int64, err error) {
	for i, list := range []func(context.Context, ...string) (kadm.ListedOffsets, error){
		c.admin.ListStartOffsets, c.admin.ListEndOffsets,
	} {
		listed, err := list(ctx, at.Topic)
		if err != nil {
			return found, err
		}
		offset, _ := listed.Lookup(at.Topic, at.Partition)
		found[i] = offset.Offset
	}
	return found, nil
}

func (c *consumer) OffsetForTime(at TopicPartition, timestampMs int64) (*int64, error) {
	listed, err := c.admin.ListOffsetsAfterMilli(ctx, timestampMs, at.Topic)
	if err != nil {
		return nil, err
	}
	// kadm puts the end in place of none, and says so by the timestamp.
	offset, _ := listed.Lookup(at.Topic, at.Partition)
	if offset.Timestamp < 0 {
		return nil, offset.Err
	}
	return &offset.Offset, offset.Err
}

func (c *consumer) Pause(at TopicPartition) error {
	c.client.PauseFetchPartitions(map[string][]int32{at.Topic: {at.Partition}})
	return nil
}

func (c *consumer) Resume(at TopicPartition) error {
	c.client.ResumeFetchPartitions(map[string][]int32{at.Topic: {at.Partition}})
	return nil
}

// Commit is the group client's own where there is a member, and the admin client's where partitions are assigned.
func (c *consumer) Commit(offsets []Offset) error {
	if c.subscribed && offsets == nil {
		return c.client.CommitUncommittedOffsets(ctx)
	}
	if c.subscribed {
		marked := map[string]map[int32]kgo.EpochOffset{}
		for _, offset := range offsets {
			marked[offset.Topic] = map[int32]kgo.EpochOffset{offset.Partition: {Epoch: -1, Offset: offset.Offset}}
		}
		var failed error
		c.client.CommitOffsetsSync(ctx, marked, nil)
		return failed
	}
	committed, err := c.admin.CommitOffsets(ctx, c.groupID, toCommit(offsets))
	if err != nil {
		return err
	}
	return committed.Error()
}

func toCommit(offsets []Offset) kadm.Offsets {
	var wanted kadm.Offsets
	for _, offset := range offsets {
		wanted.Add(kadm.Offset{
			Topic: offset.Topic, Partition: offset.Partition,
			At: offset.Offset, LeaderEpoch: -1, Metadata: offset.Metadata,
		})
	}
	return wanted
}

func (c *consumer) Committed(at TopicPartition) (*Offset, error) {
	fetched, err := c.admin.FetchOffsetsForTopics(ctx, c.groupID, at.Topic)
	if err != nil {
		return nil, err
	}
	found, ok := fetched.Lookup(at.Topic, at.Partition)
	if !ok || found.At < 0 {
		return nil, nil
	}
	return &Offset{at, found.At, found.Metadata}, found.Err
}

func (c *consumer) Close() error {
	if c.client != nil {
		c.client.Close()
	}
	c.admin.Close()
	return nil
}

// The shortest time for which franz-go keeps the metadata that it has.
const metadataAge = 10 * time.Millisecond

type admin struct{ *kadm.Client }

func newAdmin(r Request) (Admin, error) {
	connection, err := connected(r)
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(append(connection, kgo.MetadataMinAge(metadataAge))...)
	if err != nil {
		return nil, err
	}
	return &admin{kadm.NewClient(client)}, nil
}

func (a *admin) CreateTopic(r Request) error {
	create := a.CreateTopics
	if r.Validate {
		create = a.ValidateCreateTopics
	}
	created, err := create(ctx, r.Count, 1, pointers(r.Configs), r.Topic)
	if err != nil {
		return err
	}
	return created[r.Topic].Err
}

func (a *admin) DeleteTopic(topic string) error {
	deleted, err := a.DeleteTopics(ctx, topic)
	if err != nil {
		return err
	}
	return deleted[topic].Err
}

func (a *admin) Topics() (map[string]int, error) {
	time.Sleep(metadataAge) // so that it is asked for anew
	listed, err := a.ListTopics(ctx)
	found := map[string]int{}
	for _, topic := range listed {
		found[topic.Topic] = len(topic.Partitions)
	}
	return found, err
}

func (a *admin) CreatePartitions(topic string, total int32) error {
	updated, err := a.UpdatePartitions(ctx, int(total), topic)
	if err != nil {
		return err
	}
	return updated[topic].Err
}

func (a *admin) TopicConfigs(topic string) (map[string]*string, error) {
	described, err := a.DescribeTopicConfigs(ctx, topic)
	found := map[string]*string{}
	for _, resource := range described {
		for _, config := range resource.Configs {
			found[config.Key] = config.Value
		}
	}
	return found, err
}

func (a *admin) AlterConfigs(topic string, configs map[string]string) error {
	var wanted []kadm.AlterConfig
	for name, value := range configs {
		wanted = append(wanted, kadm.AlterConfig{Name: name, Value: &value})
	}
	return altered(a.AlterTopicConfigsState(ctx, wanted, topic))
}

func (a *admin) IncrementalAlterConfigs(topic string, changes []Change) error {
	operations := map[string]kadm.IncrementalOp{
		"SET": kadm.SetConfig, "DELETE": kadm.DeleteConfig, "APPEND": kadm.AppendConfig, "SUBTRACT": kadm.SubtractConfig,
	}
	var wanted []kadm.AlterConfig
	for _, change := range changes {
		wanted = append(wanted, kadm.AlterConfig{Op: operations[change.Operation], Name: change.Name, Value: change.Value})
	}
	return altered(a.AlterTopicConfigs(ctx, wanted, topic))
}

func altered(responses kadm.AlterConfigsResponses, err error) error {
	for _, response := range responses {
		if err == nil {
			err = response.Err
		}
	}
	return err
}

func (a *admin) DeleteRecords(at TopicPartition, before int64) (int64, error) {
	var wanted kadm.Offsets
	wanted.AddOffset(at.Topic, at.Partition, before, -1)
	deleted, err := a.Client.DeleteRecords(ctx, wanted)
	if err != nil {
		return 0, err
	}
	found, _ := deleted.Lookup(at.Topic, at.Partition)
	return found.LowWatermark, found.Err
}

func (a *admin) Groups() ([]string, error) {
	listed, err := a.ListGroups(ctx)
	return listed.Groups(), err
}

func (a *admin) DescribeGroup(group string) (GroupState, error) {
	described, err := a.DescribeGroups(ctx, group)
	return GroupState{described[group].State, len(described[group].Members)}, err
}

func (a *admin) GroupOffsets(group string) ([]Offset, error) {
	fetched, err := a.FetchOffsets(ctx, group)
	var found []Offset
	fetched.Each(func(each kadm.OffsetResponse) {
		found = append(found, Offset{TopicPartition{each.Topic, each.Partition}, each.At, each.Metadata})
	})
	return found, err
}

func (a *admin) AlterGroupOffset(group string, at TopicPartition, offset int64) error {
	committed, err := a.CommitOffsets(ctx, group, toCommit([]Offset{{at, offset, ""}}))
	if err != nil {
		return err
	}
	return committed.Error()
}

func (a *admin) DeleteGroup(group string) error {
	deleted, err := a.Client.DeleteGroup(ctx, group)
	if err != nil {
		return err
	}
	return deleted.Err
}

func (a *admin) DeleteGroupOffset(group string, at TopicPartition) error {
	var wanted kadm.TopicsSet
	wanted.Add(at.Topic, at.Partition)
	deleted, err := a.DeleteOffsets(ctx, group, wanted)
	if err != nil {
		return err
	}
	return deleted.Error()
}

func (a *admin) ListOffset(at TopicPartition, spec string, timestampMs int64) (int64, error) {
	lists := map[string]func(context.Context, ...string) (kadm.ListedOffsets, error){
		"earliest": a.ListStartOffsets, "latest": a.ListEndOffsets, "max_timestamp": a.ListMaxTimestampOffsets,
	}
	list, named := lists[spec]
	if !named {
		list = func(ctx context.Context, topics ...string) (kadm.ListedOffsets, error) {
			return a.ListOffsetsAfterMilli(ctx, timestampMs, topics...)
		}
	}
	listed, err := list(ctx, at.Topic)
	if err != nil {
		return 0, err
	}
	found, _ := listed.Lookup(at.Topic, at.Partition)
	if !named && found.Timestamp < 0 {
		return -1, found.Err
	}
	return found.Offset, found.Err
}

func (a *admin) LogDirSizes() ([]Size, error) {
	described, err := a.DescribeAllLogDirs(ctx, nil)
	var found []Size
	described.Each(func(each kadm.DescribedLogDir) {
		each.Topics.Each(func(partition kadm.DescribedLogDirPartition) {
			found = append(found, Size{TopicPartition{partition.Topic, partition.Partition}, partition.Size})
		})
	})
	return found, err
}

func (a *admin) DescribeCluster() (Cluster, error) {
	metadata, err := a.BrokerMetadata(ctx)
	cluster := Cluster{ClusterID: metadata.Cluster, ControllerID: metadata.Controller}
	for _, broker := range metadata.Brokers {
		cluster.Brokers = append(cluster.Brokers, Node{broker.NodeID, broker.Host, broker.Port})
	}
	slices.SortFunc(cluster.Brokers, func(a, b Node) int { return int(a.ID - b.ID) })
	return cluster, err
}

func (a *admin) Close() error {
	a.Client.Close()
	return nil
}
