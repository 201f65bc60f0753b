// The driver's side of PROTOCOL.md, shared by the Go clients: it reads requests, calls the client, and answers.
// Each client's folder implements the interfaces and newProducer, newConsumer, newAdmin and errorCode, and names its
// module.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"
)

type Header struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

// Sent is a record to be sent; nil is absent.
type Sent struct {
	Topic       string   `json:"topic"`
	Value       []byte   `json:"value"`
	Key         []byte   `json:"key"`
	Headers     []Header `json:"headers"`
	TimestampMs *int64   `json:"timestamp_ms"`
	Partition   *int32   `json:"partition"`
}

type Delivery struct {
	Error     int   `json:"error"`
	Partition int32 `json:"partition"`
	Offset    int64 `json:"offset"`
}

type Received struct {
	Topic         string   `json:"topic"`
	Partition     int32    `json:"partition"`
	Offset        int64    `json:"offset"`
	Key           []byte   `json:"key"`
	Value         []byte   `json:"value"`
	Headers       []Header `json:"headers"`
	TimestampMs   int64    `json:"timestamp_ms"`
	TimestampType *int     `json:"timestamp_type"`
}

type TopicPartition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
}

type Offset struct {
	TopicPartition
	Offset   int64  `json:"offset"`
	Metadata string `json:"metadata"`
}

type Polled struct {
	Records     []Received `json:"records"`
	Revocations int        `json:"revocations"`
}

type Change struct {
	Operation string  `json:"operation"`
	Name      string  `json:"name"`
	Value     *string `json:"value"`
}

type Size struct {
	TopicPartition
	Size int64 `json:"size"`
}

type GroupState struct {
	State   string `json:"state"`
	Members int    `json:"members"`
}

type Node struct {
	ID   int32  `json:"id"`
	Host string `json:"host"`
	Port int32  `json:"port"`
}

type Cluster struct {
	ClusterID    string `json:"cluster_id"`
	ControllerID int32  `json:"controller_id"`
	Brokers      []Node `json:"brokers"`
}

// Request has the fields of every operation; an operation reads those that PROTOCOL.md gives it.
type Request struct {
	ID        int    `json:"id"`
	Op        string `json:"op"`
	On        int    `json:"on"`
	Bootstrap string `json:"bootstrap"`
	Security *Security `json:"security"`

	// Options of producers.
	Codec           string `json:"codec"`
	Partitioner     string `json:"partitioner"`
	Acks            int    `json:"acks"`
	Idempotent      *bool  `json:"idempotent"`
	LingerMs        int    `json:"linger_ms"`
	RequestBytesMax int32  `json:"request_bytes_max"`
	PatienceMs      int    `json:"patience_ms"`
	TransactionalID string `json:"transactional_id"`

	// Options of consumers.
	InstanceID          string `json:"instance_id"`
	Assignor            string `json:"assignor"`
	OffsetReset         string `json:"offset_reset"`
	FetchWaitMs         int    `json:"fetch_wait_ms"`
	PartitionFetchBytes int32  `json:"partition_fetch_bytes"`
	Isolation           string `json:"isolation"`

	Records []Sent `json:"records"`
	TopicPartition
	Partitions  []TopicPartition  `json:"partitions"`
	Offset      int64             `json:"offset"`
	Offsets     []Offset          `json:"offsets"`
	TimeoutMs   int               `json:"timeout_ms"`
	TimestampMs int64             `json:"timestamp_ms"`
	Spec        string            `json:"spec"`
	Consumer    int               `json:"consumer"`
	Group       string            `json:"group"`
	Count       int32             `json:"count"`
	Configs     map[string]string `json:"configs"`
	Changes     []Change          `json:"changes"`
	Validate    bool              `json:"validate_only"`
}

// Addresses are those to begin with, HOST:PORT.
func (r Request) Addresses() []string { return strings.Split(r.Bootstrap, ",") }

type Producer interface {
	Produce([]Sent) []Delivery
	Begin() error
	SendOffsets(offsets []Offset, consumer Consumer) error
	End(commit bool) error
	Close() error
}

type Consumer interface {
	Subscribe(topic string) error
	Assign([]TopicPartition) error
	Assignment() ([]TopicPartition, error)
	Poll(timeoutMs int) (Polled, error)
	Seek(at TopicPartition, offset int64) error
	SeekToBeginning(TopicPartition) error
	SeekToEnd(TopicPartition) error
	Position(TopicPartition) (int64, error)
	BeginningAndEnd(TopicPartition) ([2]int64, error)
	OffsetForTime(at TopicPartition, timestampMs int64) (*int64, error)
	Pause(TopicPartition) error
	Resume(TopicPartition) error
	Commit([]Offset) error
	Committed(TopicPartition) (*Offset, error)
	Close() error
}

type Admin interface {
	CreateTopic(Request) error
	DeleteTopic(topic string) error
	Topics() (map[string]int, error)
	CreatePartitions(topic string, total int32) error
	TopicConfigs(topic string) (map[string]*string, error)
	AlterConfigs(topic string, configs map[string]string) error
	IncrementalAlterConfigs(topic string, changes []Change) error
	DeleteRecords(at TopicPartition, before int64) (int64, error)
	Groups() ([]string, error)
	DescribeGroup(group string) (GroupState, error)
	GroupOffsets(group string) ([]Offset, error)
	AlterGroupOffset(group string, at TopicPartition, offset int64) error
	DeleteGroup(group string) error
	DeleteGroupOffset(group string, at TopicPartition) error
	ListOffset(at TopicPartition, spec string, timestampMs int64) (int64, error)
	LogDirSizes() ([]Size, error)
	DescribeCluster() (Cluster, error)
	Close() error
}

// coded is an error with a code of Kafka's.
type coded int

func (code coded) Error() string { return fmt.Sprintf("error code %d", int(code)) }

func notOffered(what string) error { return fmt.Errorf("%s has no %s", clientName, what) }

// pointers are configs as most calls want them.
func pointers(configs map[string]string) map[string]*string {
	entries := map[string]*string{}
	for name, value := range configs {
		entries[name] = &value
	}
	return entries
}

type driver struct {
	mutex   sync.Mutex
	objects map[int]any
	next    int
	replies *bufio.Writer
}

func main() {
	d := &driver{objects: map[int]any{}, replies: bufio.NewWriter(os.Stdout)}
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var request Request
		if err := json.Unmarshal(line, &request); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		go func() {
			result, err := d.handle(request)
			d.reply(request.ID, result, err)
		}()
	}
}

// clientVersion is that of the client's module in this program.
func clientVersion() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == clientModule {
			return module.Version
		}
	}
	return "unknown"
}

func (d *driver) reply(id int, result any, err error) {
	reply := map[string]any{"id": id, "result": result}
	if err != nil {
		reply = map[string]any{"id": id, "error": map[string]any{"code": errorCode(err), "message": err.Error()}}
	}
	line, failed := json.Marshal(reply)
	if failed != nil {
		panic(failed)
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.replies.Write(append(line, '\n'))
	d.replies.Flush()
}

func (d *driver) keep(object any, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.next++
	d.objects[d.next] = object
	return d.next, nil
}

func (d *driver) object(handle int) any {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.objects[handle]
}

func (d *driver) handle(r Request) (any, error) {
	switch r.Op {
	case "hello":
		return map[string]string{"client": clientName, "version": clientVersion()}, nil
	case "open_producer":
		return d.keep(newProducer(r))
	case "open_consumer":
		return d.keep(newConsumer(r))
	case "open_admin":
		return d.keep(newAdmin(r))
	}
	object := d.object(r.On)
	if r.Op == "close" {
		d.mutex.Lock()
		delete(d.objects, r.On)
		d.mutex.Unlock()
		return nil, object.(interface{ Close() error }).Close()
	}
	switch object := object.(type) {
	case Producer:
		return d.produce(object, r)
	case Consumer:
		return consume(object, r)
	case Admin:
		return administer(object, r)
	}
	return nil, fmt.Errorf("there is no object %d", r.On)
}

func (d *driver) produce(p Producer, r Request) (any, error) {
	switch r.Op {
	case "produce":
		return p.Produce(r.Records), nil
	case "begin":
		return nil, p.Begin()
	case "send_offsets":
		return nil, p.SendOffsets(r.Offsets, d.object(r.Consumer).(Consumer))
	case "commit_transaction":
		return nil, p.End(true)
	case "abort_transaction":
		return nil, p.End(false)
	}
	return nil, fmt.Errorf("unknown operation %s", r.Op)
}

func consume(c Consumer, r Request) (any, error) {
	at := r.TopicPartition
	switch r.Op {
	case "subscribe":
		return nil, c.Subscribe(r.Topic)
	case "assign":
		return nil, c.Assign(r.Partitions)
	case "assignment":
		return listed(c.Assignment())
	case "poll":
		polled, err := c.Poll(r.TimeoutMs)
		polled.Records, err = listed(polled.Records, err)
		return polled, err
	case "seek":
		return nil, c.Seek(at, r.Offset)
	case "seek_to_beginning":
		return nil, c.SeekToBeginning(at)
	case "seek_to_end":
		return nil, c.SeekToEnd(at)
	case "position":
		return c.Position(at)
	case "beginning_and_end":
		return c.BeginningAndEnd(at)
	case "offset_for_time":
		return c.OffsetForTime(at, r.TimestampMs)
	case "pause":
		return nil, c.Pause(at)
	case "resume":
		return nil, c.Resume(at)
	case "commit":
		return nil, c.Commit(r.Offsets)
	case "commit_async":
		go c.Commit(r.Offsets)
		return nil, nil
	case "committed":
		return c.Committed(at)
	}
	return nil, fmt.Errorf("unknown operation %s", r.Op)
}

func administer(a Admin, r Request) (any, error) {
	at := r.TopicPartition
	switch r.Op {
	case "create_topic":
		return nil, a.CreateTopic(r)
	case "delete_topic":
		return nil, a.DeleteTopic(r.Topic)
	case "topics":
		return a.Topics()
	case "create_partitions":
		return nil, a.CreatePartitions(r.Topic, r.Count)
	case "topic_configs":
		return a.TopicConfigs(r.Topic)
	case "alter_configs":
		return nil, a.AlterConfigs(r.Topic, r.Configs)
	case "incremental_alter_configs":
		return nil, a.IncrementalAlterConfigs(r.Topic, r.Changes)
	case "delete_records":
		return a.DeleteRecords(at, r.Offset)
	case "groups":
		return listed(a.Groups())
	case "describe_group":
		return a.DescribeGroup(r.Group)
	case "group_offsets":
		return listed(a.GroupOffsets(r.Group))
	case "alter_group_offset":
		return nil, a.AlterGroupOffset(r.Group, at, r.Offset)
	case "delete_group":
		return nil, a.DeleteGroup(r.Group)
	case "delete_group_offset":
		return nil, a.DeleteGroupOffset(r.Group, at)
	case "list_offset":
		return a.ListOffset(at, r.Spec, r.TimestampMs)
	case "log_dir_sizes":
		return listed(a.LogDirSizes())
	case "describe_cluster":
		return a.DescribeCluster()
	}
	return nil, fmt.Errorf("unknown operation %s", r.Op)
}

// listed makes an empty list of what JSON would write as null.
func listed[T any](items []T, err error) ([]T, error) {
	if items == nil {
		items = []T{}
	}
	return items, err
}
