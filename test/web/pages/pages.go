// Package pages serves web pages of machines and clusters that are made up, for tests and measurements.
package pages

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/overview"
	"github.com/divvy-gpu/divvy/internal/webpage"
)

// Machine is one with eight GPUs, one of them faulty, 20 shares on each of the others, and who waits.
func Machine() *overview.Overview {
	o := overview.New(time.Now())
	n := overview.Node{Name: "gpu1", Notes: []string{"GPU 9 is left out: the driver has not answered about it yet"}}
	for g := range 8 {
		gpu := overview.GPU{
			Index: new(g), UUID: fmt.Sprintf("GPU-%d", g), Model: "NVIDIA A800-SXM4-80GB", Form: "slice", Capacity: 80 << 30, Granted: 60 << 30,
			Used: new(uint64(g) << 33), Cores: 100, Utilisation: new(11 * g), Temperature: new(40 + g), Count: 20,
		}
		for s := range 20 {
			held := time.Duration(s) * time.Minute
			gpu.Shares = append(gpu.Shares, overview.Share{
				Name: fmt.Sprintf("train-%d", s), User: "ada", Command: "python train.py --epochs 10", Since: time.Now().Add(-time.Hour), Memory: 3 << 30,
				Used: new(uint64(s) << 27), Cores: 5, Percent: new(4.6), HeldBack: &held, Policy: "fixed", Class: "online", Refused: uint64(s % 2),
			})
		}
		if g == 7 {
			gpu.Count, gpu.Shares, gpu.Fault = 0, nil, "XID 79: it has fallen off the bus"
		}
		n.GPUs = append(n.GPUs, gpu)
	}
	n.Outside = []overview.Outside{{PID: 4711, User: "eve", Command: "hashcat", GPU: 0, Used: new(uint64(1 << 30))}}
	o.Nodes = append(o.Nodes, n)
	o.Hidden = "You see your own shares, and sums over those of all users."
	o.Waiting = []overview.Waiting{{Name: "big", User: "ada", Since: time.Now(), Reason: "no GPU has 60Gi free"}}
	o.WaitingUnseen = 1
	return o
}

// Cluster has nodes with eight GPUs each, and two shares on each GPU.
func Cluster(nodes int) *overview.Overview {
	o := overview.New(time.Now())
	for n := range nodes {
		node := overview.Node{Name: fmt.Sprintf("gpu-node-%04d", n)}
		for g := range 8 {
			gpu := overview.GPU{
				Index: new(g), UUID: fmt.Sprintf("GPU-%04d-%d", n, g), Device: fmt.Sprintf("gpu-%04d-%d-shared", n, g), Model: "NVIDIA H100 80GB HBM3",
				Form: "slice", Capacity: 80 << 30, Granted: uint64(n*7+g*13) % 80 << 30, Cores: (n*3 + g*17) % 100, Count: 2,
			}
			for s := range 2 {
				gpu.Shares = append(gpu.Shares, overview.Share{
					Name: fmt.Sprintf("train-%d-%d-gpu", n, s), Namespace: fmt.Sprintf("team-%d", n%40), Pods: []string{fmt.Sprintf("train-%d-%d", n, s)}, Memory: 20 << 30, Cores: 20,
				})
			}
			if n%97 == 0 && g == 3 {
				gpu.Fault = "xid-79"
			}
			node.GPUs = append(node.GPUs, gpu)
		}
		o.Nodes = append(o.Nodes, node)
	}
	for w := range 20 {
		o.Waiting = append(o.Waiting, overview.Waiting{Namespace: "team-1", Name: fmt.Sprintf("wait-%d", w), Since: time.Now(), Reason: "no GPU has 100Gi: the largest has 80Gi; 1000 nodes have GPUs"})
	}
	return o
}

// Served are pages at an address.
type Served struct {
	// Address is that of the first page.
	Address string
	server  *http.Server
}

// Serve serves what shown returns, at an address of the loopback interface such as 127.0.0.1:0.
func Serve(ctx context.Context, address string, c webpage.Config, shown func() *overview.Overview) (*Served, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve pages: %w", err)
	}
	c.Version, c.Log = "0.1.0", slog.New(slog.DiscardHandler)
	c.Overview = func(context.Context, string) (*overview.Overview, error) { return shown(), nil }
	site := webpage.New(c)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		site.Answer(w, r, webpage.Reader{}, strings.TrimPrefix(r.URL.Path, "/"))
	})
	s := &Served{Address: "http://" + listener.Addr().String() + "/", server: &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}}
	go func() { _ = s.server.Serve(listener) }() // it ends by Close
	return s, nil
}

// Close ends every connection.
func (s *Served) Close() error {
	if err := s.server.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("stop serving pages: %w", err)
	}
	return nil
}
