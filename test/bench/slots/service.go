package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// service leads connections to the replica of the extender that says it is ready, as a Service of Kubernetes does. Connections
// that stand stay where they are.
type service struct {
	listener net.Listener
	cancel   context.CancelFunc
	group    sync.WaitGroup

	mutex  sync.Mutex
	target string // address, "" while none is ready
	name   string
}

// readyEvery is the time between two looks which replica is ready.
const readyEvery = 200 * time.Millisecond

// serve begins. Which tells the name and the address of the replica that is ready.
func serve(ctx context.Context, which func(ctx context.Context) (name, address string)) (*service, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the scheduler: %w", err)
	}
	s := &service{listener: listener}
	ctx, s.cancel = context.WithCancel(ctx)
	s.group.Go(func() {
		ticker := time.NewTicker(readyEvery)
		defer ticker.Stop()
		for ctx.Err() == nil {
			name, address := which(ctx)
			s.mutex.Lock()
			s.name, s.target = name, address
			s.mutex.Unlock()
			select {
			case <-ticker.C:
			case <-ctx.Done():
			}
		}
	})
	s.group.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.group.Go(func() { s.lead(ctx, conn) })
		}
	})
	return s, nil
}

// url is where the scheduler asks.
func (s *service) url() string { return "https://" + s.listener.Addr().String() }

// leader is the replica that is ready, "" while none is.
func (s *service) leader() string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.name
}

// lead copies both ways until one side ends.
func (s *service) lead(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	s.mutex.Lock()
	target := s.target
	s.mutex.Unlock()
	if target == "" {
		return
	}
	other, err := new(net.Dialer).DialContext(ctx, "tcp", target)
	if err != nil {
		return
	}
	defer other.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{conn, other}, {other, conn}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			cancel()
		})
	}
	<-ctx.Done()
	conn.Close()
	other.Close()
	both.Wait()
}

// close ends all connections.
func (s *service) close() {
	s.cancel()
	s.listener.Close()
	s.group.Wait()
}
