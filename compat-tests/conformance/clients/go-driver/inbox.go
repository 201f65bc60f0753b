package main

import (
	"sync"
	"time"
)

// The most records that one poll answers.
const pollRecordsMax = 500

// inbox gathers, for polls, what a client hands out by a channel for each partition.  Its positions are of what was
// polled: such clients tell no other.
type inbox[Message any] struct {
	mutex       sync.Mutex
	sources     map[TopicPartition]<-chan Message
	positions   map[TopicPartition]int64
	revocations int
	received    func(Message) Received
}

func newInbox[Message any](received func(Message) Received) inbox[Message] {
	return inbox[Message]{
		sources:   map[TopicPartition]<-chan Message{},
		positions: map[TopicPartition]int64{},
		received:  received,
	}
}

// Poll waits for the first records, and answers with those that are there by then.
func (i *inbox[Message]) Poll(timeoutMs int) (Polled, error) {
	deadline := time.Now().Add(time.Duration(timeoutMs) * time.Millisecond)
	for {
		polled := i.take()
		if len(polled.Records) > 0 || time.Now().After(deadline) {
			return polled, nil
		}
		time.Sleep(time.Millisecond)
	}
}

func (i *inbox[Message]) take() Polled {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	polled := Polled{Revocations: i.revocations}
	for at, source := range i.sources {
		for there := true; there && len(polled.Records) < pollRecordsMax; {
			var message Message
			select {
			case message, there = <-source:
			default:
				there = false
			}
			if there {
				record := i.received(message)
				polled.Records = append(polled.Records, record)
				i.positions[at] = record.Offset + 1
			}
		}
	}
	return polled
}

func (i *inbox[Message]) Position(at TopicPartition) (int64, error) {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	if position, polled := i.positions[at]; polled {
		return position, nil
	}
	return -1, nil
}

// uncommitted are the positions, where no offsets were named to be committed.
func (i *inbox[Message]) uncommitted(offsets []Offset) []Offset {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	if offsets == nil {
		for at, position := range i.positions {
			offsets = append(offsets, Offset{at, position, ""})
		}
	}
	return offsets
}
