// sarama behind the driver.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"
)

const (
	clientName   = "sarama"
	clientModule = "github.com/IBM/sarama"
)

func errorCode(err error) int {
	var known sarama.KError
	if errors.As(err, &known) {
		return int(known)
	}
	return -1
}

var codecs = map[string]sarama.CompressionCodec{
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

var partitioners = map[string]sarama.PartitionerConstructor{
	"":          sarama.NewHashPartitioner,
	"fnv":       sarama.NewHashPartitioner,
	"crc32":     sarama.NewConsistentCRCHashPartitioner,
	"reference": sarama.NewReferenceHashPartitioner,
	"murmur2":   sarama.NewMurmur2Partitioner,
}

// byHand marks a message whose partition the scenario names.
type byHand struct{}

// chooser takes the partition that a message names, and leaves the others to a partitioner of the client's.
type chooser struct{ sarama.Partitioner }

func (c chooser) Partition(message *sarama.ProducerMessage, partitions int32) (int32, error) {
	if message.Metadata == (byHand{}) {
		return message.Partition, nil
	}
	return c.Partitioner.Partition(message, partitions)
}

func baseConfig(r Request) (*sarama.Config, error) {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Metadata.Retry.Max = 20
	config.Metadata.Retry.Backoff = 100 * time.Millisecond
	if r.Security == nil {
		return config, nil
	}
	var err error
	config.Net.TLS.Enable = true
	if config.Net.TLS.Config, err = r.Security.TLS(); err != nil {
		return nil, err
	}
	if r.Security.Mechanism != "" {
		config.Net.SASL.Enable = true
		config.Net.SASL.Mechanism = sarama.SASLTypeSCRAMSHA512
		config.Net.SASL.User, config.Net.SASL.Password = r.Security.User, r.Security.Password
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{} }
	}
	return config, nil
}

type producer struct{ sarama.SyncProducer }

func newProducer(r Request) (Producer, error) {
	config, err := baseConfig(r)
	if err != nil {
		return nil, err
	}
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.RequiredAcks(r.Acks)
	config.Producer.Compression = codecs[r.Codec]
	config.Producer.MaxMessageBytes = int(r.RequestBytesMax)
	config.Producer.Flush.Frequency = time.Duration(r.LingerMs) * time.Millisecond
	config.Producer.Retry.Max = 20
	keyed := partitioners[r.Partitioner]
	config.Producer.Partitioner = func(topic string) sarama.Partitioner { return chooser{keyed(topic)} }
	if r.PatienceMs > 0 {
		config.Metadata.Retry.Max = 1
		config.Producer.Retry.Max = 1
	}
	if r.TransactionalID != "" || (r.Idempotent != nil && *r.Idempotent) {
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
	}
	config.Producer.Transaction.ID = r.TransactionalID
	client, err := sarama.NewSyncProducer(r.Addresses(), config)
	if err != nil {
		return nil, err
	}
	return &producer{client}, nil
}

func (p *producer) Produce(records []Sent) []Delivery {
	messages := make([]*sarama.ProducerMessage, len(records))
	failed := map[*sarama.ProducerMessage]error{}
	for i, sent := range records {
		messages[i] = message(sent)
	}
	if err := p.SendMessages(messages); err != nil {
		var each sarama.ProducerErrors
		if !errors.As(err, &each) {
			for _, sent := range messages {
				failed[sent] = err
			}
		}
		for _, one := range each {
			failed[one.Msg] = one.Err
		}
	}
	deliveries := make([]Delivery, len(records))
	for i, sent := range messages {
		deliveries[i] = Delivery{0, sent.Partition, sent.Offset}
		if err := failed[sent]; err != nil {
			deliveries[i] = Delivery{errorCode(err), -1, -1}
		}
	}
	return deliveries
}

func message(sent Sent) *sarama.ProducerMessage {
	made := &sarama.ProducerMessage{Topic: sent.Topic}
	if sent.Key != nil {
		made.Key = sarama.ByteEncoder(sent.Key)
	}
	if sent.Value != nil {
		made.Value = sarama.ByteEncoder(sent.Value)
	}
	for _, header := range sent.Headers {
		made.Headers = append(made.Headers, sarama.RecordHeader{Key: []byte(header.Key), Value: header.Value})
	}
	if sent.TimestampMs != nil {
		made.Timestamp = time.UnixMilli(*sent.TimestampMs)
	}
	if sent.Partition != nil {
		made.Partition = *sent.Partition
		made.Metadata = byHand{}
	}
	return made
}

func (p *producer) Begin() error { return p.BeginTxn() }

func (p *producer) SendOffsets(offsets []Offset, consuming Consumer) error {
	wanted := map[string][]*sarama.PartitionOffsetMetadata{}
	for _, offset := range offsets {
		marked := &sarama.PartitionOffsetMetadata{Partition: offset.Partition, Offset: offset.Offset, LeaderEpoch: -1}
		wanted[offset.Topic] = append(wanted[offset.Topic], marked)
	}
	return p.AddOffsetsToTxn(wanted, consuming.(*consumer).group)
}

func (p *producer) End(commit bool) error {
	if commit {
		return p.CommitTxn()
	}
	return p.AbortTxn()
}

// consumer is a member of a group once it has subscribed, and a consumer of partitions once they are assigned.
type consumer struct {
	group   string
	reset   int64
	client  sarama.Client
	admin   sarama.ClusterAdmin
	single  sarama.Consumer
	member  sarama.ConsumerGroup
	leave   context.CancelFunc
	left    chan struct{}
	session sarama.ConsumerGroupSession
	singles map[TopicPartition]sarama.PartitionConsumer
	claims  []TopicPartition
	inbox[*sarama.ConsumerMessage]
}

func newConsumer(r Request) (Consumer, error) {
	config, err := baseConfig(r)
	if err != nil {
		return nil, err
	}
	config.Consumer.Group.Heartbeat.Interval = 100 * time.Millisecond
	config.Consumer.Group.InstanceId = r.InstanceID
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	if r.OffsetReset == "latest" {
		config.Consumer.Offsets.Initial = sarama.OffsetNewest
	}
	if r.FetchWaitMs > 0 {
		config.Consumer.MaxWaitTime = time.Duration(r.FetchWaitMs) * time.Millisecond
	}
	if r.PartitionFetchBytes > 0 {
		config.Consumer.Fetch.Default = r.PartitionFetchBytes
	}
	if r.Isolation == "read_committed" {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	strategies := map[string]sarama.BalanceStrategy{
		"range":      sarama.NewBalanceStrategyRange(),
		"roundrobin": sarama.NewBalanceStrategyRoundRobin(),
		"sticky":     sarama.NewBalanceStrategySticky(),
	}
	if strategy := strategies[r.Assignor]; strategy != nil {
		config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy}
	}
	client, err := sarama.NewClient(r.Addresses(), config)
	if err != nil {
		return nil, err
	}
	made := &consumer{
		group:   r.Group,
		reset:   config.Consumer.Offsets.Initial,
		client:  client,
		singles: map[TopicPartition]sarama.PartitionConsumer{},
		inbox:   newInbox(received),
	}
	made.admin, err = sarama.NewClusterAdminFromClient(client)
	return made, err
}

func (c *consumer) Subscribe(topic string) (err error) {
	if c.member, err = sarama.NewConsumerGroupFromClient(c.group, c.client); err != nil {
		return err
	}
	ctx, leave := context.WithCancel(context.Background())
	c.leave, c.left = leave, make(chan struct{})
	go func() {
		defer close(c.left)
		for ctx.Err() == nil {
			if c.member.Consume(ctx, []string{topic}, c) != nil {
				time.Sleep(100 * time.Millisecond)
			}
		}
	}()
	return nil
}

// Setup is called by sarama when a generation begins.
func (c *consumer) Setup(session sarama.ConsumerGroupSession) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.session = session
	for topic, partitions := range session.Claims() {
		for _, partition := range partitions {
			c.claims = append(c.claims, TopicPartition{topic, partition})
		}
	}
	return nil
}

// Cleanup is called by sarama when a generation ends.
func (c *consumer) Cleanup(sarama.ConsumerGroupSession) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.session, c.claims = nil, nil
	clear(c.sources)
	c.revocations++
	return nil
}

// ConsumeClaim hands the claim's messages to polls until the generation ends.
func (c *consumer) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	c.mutex.Lock()
	c.sources[TopicPartition{claim.Topic(), claim.Partition()}] = claim.Messages()
	c.mutex.Unlock()
	<-session.Context().Done()
	return nil
}

func (c *consumer) Assign(partitions []TopicPartition) (err error) {
	if c.single, err = sarama.NewConsumerFromClient(c.client); err != nil {
		return err
	}
	for _, at := range partitions {
		if err := c.start(at, c.reset); err != nil {
			return err
		}
	}
	return nil
}

func (c *consumer) start(at TopicPartition, offset int64) error {
	source, err := c.single.ConsumePartition(at.Topic, at.Partition, offset)
	if errors.Is(err, sarama.ErrOffsetOutOfRange) {
		// A consumer of partitions leaves resetting to its application.
		source, err = c.single.ConsumePartition(at.Topic, at.Partition, c.reset)
	}
	if err != nil {
		return err
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.singles[at], c.sources[at] = source, source.Messages()
	return nil
}

func (c *consumer) Assignment() (assigned []TopicPartition, err error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.member != nil {
		return append(assigned, c.claims...), nil
	}
	for at := range c.sources {
		assigned = append(assigned, at)
	}
	return assigned, nil
}

func received(message *sarama.ConsumerMessage) Received {
	headers := []Header{}
	for _, header := range message.Headers {
		headers = append(headers, Header{string(header.Key), header.Value})
	}
	return Received{
		message.Topic, message.Partition, message.Offset, message.Key, message.Value,
		headers, message.Timestamp.UnixMilli(), nil,
	}
}

func (c *consumer) Seek(at TopicPartition, offset int64) error {
	if source := c.singles[at]; source != nil {
		if err := source.Close(); err != nil {
			return err
		}
	}
	return c.start(at, offset)
}

func (c *consumer) SeekToBeginning(at TopicPartition) error { return c.Seek(at, sarama.OffsetOldest) }

func (c *consumer) SeekToEnd(at TopicPartition) error { return c.Seek(at, sarama.OffsetNewest) }

func (c *consumer) BeginningAndEnd(at TopicPartition) (found [2]int64, err error) {
	for i, where := range []int64{sarama.OffsetOldest, sarama.OffsetNewest} {
		if found[i], err = c.client.GetOffset(at.Topic, at.Partition, where); err != nil {
			return found, err
		}
	}
	return found, nil
}

func (c *consumer) OffsetForTime(at TopicPartition, timestampMs int64) (*int64, error) {
	found, err := c.client.GetOffset(at.Topic, at.Partition, timestampMs)
	if err != nil || found < 0 {
		return nil, err
	}
	return &found, nil
}

func (c *consumer) Pause(at TopicPartition) error {
	c.singles[at].Pause()
	return nil
}

func (c *consumer) Resume(at TopicPartition) error {
	c.singles[at].Resume()
	return nil
}

// Commit is the session's where there is a member, and an offset manager's where partitions are assigned.
func (c *consumer) Commit(offsets []Offset) error {
	offsets = c.uncommitted(offsets)
	c.mutex.Lock()
	session := c.session
	c.mutex.Unlock()
	if session != nil {
		for _, offset := range offsets {
			session.MarkOffset(offset.Topic, offset.Partition, offset.Offset, offset.Metadata)
		}
		session.Commit()
		return nil
	}
	return c.commitAlone(offsets)
}

func (c *consumer) commitAlone(offsets []Offset) error {
	manager, err := sarama.NewOffsetManagerFromClient(c.group, c.client)
	if err != nil {
		return err
	}
	for _, offset := range offsets {
		partition, err := manager.ManagePartition(offset.Topic, offset.Partition)
		if err != nil {
			return err
		}
		partition.MarkOffset(offset.Offset, offset.Metadata)
		defer partition.Close()
	}
	manager.Commit()
	return manager.Close()
}

func (c *consumer) Committed(at TopicPartition) (*Offset, error) {
	fetched, err := c.admin.ListConsumerGroupOffsets(c.group, map[string][]int32{at.Topic: {at.Partition}})
	if err != nil {
		return nil, err
	}
	block := fetched.GetBlock(at.Topic, at.Partition)
	if block == nil || block.Offset < 0 {
		return nil, nil
	}
	return &Offset{at, block.Offset, block.Metadata}, nil
}

func (c *consumer) Close() error {
	if c.member != nil {
		c.leave()
		<-c.left
		c.member.Close()
	}
	if c.single != nil {
		for _, source := range c.singles {
			source.AsyncClose()
		}
		c.single.Close()
	}
	return c.admin.Close() // which closes the client
}

type admin struct {
	sarama.ClusterAdmin
	client sarama.Client
}

func newAdmin(r Request) (Admin, error) {
	config, err := baseConfig(r)
	if err != nil {
		return nil, err
	}
	client, err := sarama.NewClient(r.Addresses(), config)
	if err != nil {
		return nil, err
	}
	made, err := sarama.NewClusterAdminFromClient(client)
	return &admin{made, client}, err
}

func (a *admin) CreateTopic(r Request) error {
	detail := &sarama.TopicDetail{NumPartitions: r.Count, ReplicationFactor: 1, ConfigEntries: pointers(r.Configs)}
	return a.ClusterAdmin.CreateTopic(r.Topic, detail, r.Validate)
}

func (a *admin) Topics() (map[string]int, error) {
	listed, err := a.ListTopics()
	found := map[string]int{}
	for name, topic := range listed {
		found[name] = int(topic.NumPartitions)
	}
	return found, err
}

func (a *admin) CreatePartitions(topic string, total int32) error {
	return a.ClusterAdmin.CreatePartitions(topic, total, nil, false)
}

func (a *admin) TopicConfigs(topic string) (map[string]*string, error) {
	entries, err := a.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic})
	found := map[string]*string{}
	for _, entry := range entries {
		found[entry.Name] = &entry.Value
	}
	return found, err
}

func (a *admin) AlterConfigs(topic string, configs map[string]string) error {
	return a.AlterConfig(sarama.TopicResource, topic, pointers(configs), false)
}

func (a *admin) IncrementalAlterConfigs(topic string, changes []Change) error {
	operations := map[string]sarama.IncrementalAlterConfigsOperation{
		"SET":      sarama.IncrementalAlterConfigsOperationSet,
		"DELETE":   sarama.IncrementalAlterConfigsOperationDelete,
		"APPEND":   sarama.IncrementalAlterConfigsOperationAppend,
		"SUBTRACT": sarama.IncrementalAlterConfigsOperationSubtract,
	}
	entries := map[string]sarama.IncrementalAlterConfigsEntry{}
	for _, change := range changes {
		entries[change.Name] = sarama.IncrementalAlterConfigsEntry{
			Operation: operations[change.Operation], Value: change.Value,
		}
	}
	return a.IncrementalAlterConfig(sarama.TopicResource, topic, entries, false)
}

func (a *admin) DeleteRecords(at TopicPartition, before int64) (int64, error) {
	if err := a.ClusterAdmin.DeleteRecords(at.Topic, map[int32]int64{at.Partition: before}); err != nil {
		return 0, err
	}
	return a.client.GetOffset(at.Topic, at.Partition, sarama.OffsetOldest)
}

func (a *admin) Groups() (found []string, err error) {
	listed, err := a.ListConsumerGroups()
	for group := range listed {
		found = append(found, group)
	}
	return found, err
}

func (a *admin) DescribeGroup(group string) (GroupState, error) {
	described, err := a.DescribeConsumerGroups([]string{group})
	if err != nil {
		return GroupState{}, err
	}
	return GroupState{described[0].State, len(described[0].Members)}, nil
}

func (a *admin) GroupOffsets(group string) (found []Offset, err error) {
	fetched, err := a.ListConsumerGroupOffsets(group, nil)
	if err != nil {
		return nil, err
	}
	for topic, partitions := range fetched.Blocks {
		for partition, block := range partitions {
			found = append(found, Offset{TopicPartition{topic, partition}, block.Offset, block.Metadata})
		}
	}
	return found, nil
}

func (a *admin) AlterGroupOffset(group string, at TopicPartition, offset int64) error {
	wanted := map[string]map[int32]sarama.OffsetAndMetadata{at.Topic: {at.Partition: {Offset: offset, LeaderEpoch: -1}}}
	altered, err := a.AlterConsumerGroupOffsets(group, wanted, nil)
	if err != nil {
		return err
	}
	if code := altered.Errors[at.Topic][at.Partition]; code != sarama.ErrNoError {
		return code
	}
	return nil
}

func (a *admin) DeleteGroup(group string) error { return a.DeleteConsumerGroup(group) }

func (a *admin) DeleteGroupOffset(group string, at TopicPartition) error {
	return a.DeleteConsumerGroupOffset(group, at.Topic, at.Partition)
}

func (a *admin) ListOffset(at TopicPartition, spec string, timestampMs int64) (int64, error) {
	where := map[string]int64{
		"earliest": sarama.OffsetOldest, "latest": sarama.OffsetNewest, "timestamp": timestampMs,
	}[spec]
	listed, err := a.ListOffsets(map[string]map[int32]int64{at.Topic: {at.Partition: where}}, nil)
	if err != nil {
		return 0, err
	}
	return listed[at.Topic][at.Partition].Offset, nil
}

func (a *admin) LogDirSizes() (found []Size, err error) {
	var ids []int32
	for _, broker := range a.client.Brokers() {
		ids = append(ids, broker.ID())
	}
	described, err := a.DescribeLogDirs(ids)
	for _, logDirs := range described {
		for _, logDir := range logDirs {
			for _, topic := range logDir.Topics {
				for _, partition := range topic.Partitions {
					found = append(found, Size{TopicPartition{topic.Topic, partition.PartitionID}, partition.Size})
				}
			}
		}
	}
	return found, err
}

func (a *admin) DescribeCluster() (Cluster, error) { return Cluster{}, notOffered("cluster id") }
