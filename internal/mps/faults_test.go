package mps

import (
	"reflect"
	"testing"
	"time"
)

func TestFaults(t *testing.T) {
	begun := time.Unix(0, 0)
	active := Server{PID: 5, Status: StatusActive, Clients: []int{7}}
	faulty := Server{PID: 5, Status: StatusFault, Clients: []int{7, 8}}
	f := faults{}
	for i, step := range []struct {
		at       time.Duration
		servers  []Server
		events   []Event
		shutdown []int
	}{
		{0, []Server{active}, nil, nil},
		{1, []Server{faulty}, []Event{{Kind: EventFault, Server: 5, Clients: []int{7, 8}}}, nil},
		{2 * time.Second, []Server{faulty}, nil, nil},
		{drainTime, []Server{faulty}, nil, nil},
		{drainTime + 1, []Server{faulty}, nil, []int{5}},
		{drainTime + time.Second, nil, []Event{{Kind: EventServes, Server: 5}}, nil},
		{drainTime + 2*time.Second, []Server{{PID: 9, Status: StatusFault}}, []Event{{Kind: EventFault, Server: 9}}, nil},
		{drainTime + 3*time.Second, []Server{{PID: 9, Status: StatusActive}}, []Event{{Kind: EventServes, Server: 9}}, nil},
		{time.Hour, []Server{{PID: 9, Status: StatusFault}}, []Event{{Kind: EventFault, Server: 9}}, nil},
	} {
		events, shutdown := f.judge(begun.Add(step.at), step.servers)
		if !reflect.DeepEqual(events, step.events) || !reflect.DeepEqual(shutdown, step.shutdown) {
			t.Errorf("step %d: %+v, shut down %v; want %+v and %v", i, events, shutdown, step.events, step.shutdown)
		}
	}
}
