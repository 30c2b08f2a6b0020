package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	kubelet "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/divvy-gpu/divvy/internal/agent/socket"
)

// resources are counted for the kubelet, each by a device plugin of its own from the first time that it is named.
type resources struct {
	// dir is the kubelet's for device plugins; what says in the log what is counted.
	dir, what string
	options   *kubelet.DevicePluginOptions
	// named returns the names, and two channels of which one is closed when there may be others.
	named func() (names []string, changed, also <-chan struct{})
	// apart is as in [endpoint].
	apart func(ctx context.Context) error
	// server makes what answers the kubelet about one resource until stopped is closed.
	server func(resource string, stopped <-chan struct{}) kubelet.DevicePluginServer
	log    *slog.Logger
}

// run counts them until ctx is done.
func (r *resources) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	counted := map[string]bool{}
	for {
		names, changed, also := r.named()
		for _, name := range names {
			if counted[name] {
				continue
			}
			counted[name] = true
			watcher, err := socket.Watch(filepath.Join(r.dir, kubeletSocket))
			if err != nil {
				return fmt.Errorf("wait for the kubelet: %w", err)
			}
			running.Go(func() { r.follow(ctx, watcher, name) })
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-also:
		}
	}
}

// follow counts one resource for each kubelet that starts, until ctx is done.
func (r *resources) follow(ctx context.Context, watcher *socket.Watcher, resource string) {
	defer watcher.Close()
	e := endpoint{
		dir: r.dir, socket: socketOf(resource), resource: resource, options: r.options,
		apart:  func() error { return r.apart(ctx) },
		server: func(stopped <-chan struct{}) kubelet.DevicePluginServer { return r.server(resource, stopped) },
	}
	watcher.Follow(ctx,
		func(ctx context.Context) error { return e.serve(ctx, watcher) },
		func(err error) {
			if errors.Is(err, errKubeletRestarted) {
				r.log.Info("the kubelet was restarted: counting "+r.what+" again", "resource", resource)
				return
			}
			r.log.Warn("cannot count "+r.what+" for the kubelet", "resource", resource, "error", err)
		})
}

// socketOf is the name of the socket for a resource: divvy-mig-1g-10gb.sock for nvidia.com/mig-1g.10gb.
func socketOf(resource string) string {
	_, name, _ := strings.Cut(resource, "/")
	return "divvy-" + strings.ReplaceAll(name, ".", "-") + ".sock"
}

// sending is a stream on which the kubelet is told what there is.
type sending[U comparable] struct {
	// units returns what there is, and what is closed when that may have changed; a channel may be nil.
	units func() (units []U, changed [3]<-chan struct{})
	// shown renders units for the kubelet, and noted is called after they were sent.
	shown func([]U) []*kubelet.Device
	noted func([]U)
	// what says in errors what is sent.
	what    string
	stopped <-chan struct{}
}

// run sends the units, and again when they change, until the kubelet goes away or stopped is closed.
func (s *sending[U]) run(stream grpc.ServerStreamingServer[kubelet.ListAndWatchResponse]) error {
	var sent []U
	for first := true; ; first = false {
		units, changed := s.units()
		if first || !slices.Equal(units, sent) {
			if err := stream.Send(&kubelet.ListAndWatchResponse{Devices: s.shown(units)}); err != nil {
				return fmt.Errorf("send %s to the kubelet: %w", s.what, err)
			}
			s.noted(units)
			sent = units
		}
		select {
		case <-changed[0]:
		case <-changed[1]:
		case <-changed[2]:
		case <-s.stopped:
			return nil
		case <-stream.Context().Done():
			return nil
		}
	}
}
