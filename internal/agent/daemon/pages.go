package daemon

import (
	"cmp"
	"context"
	"os"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/exposition"
	"github.com/divvy-gpu/divvy/internal/agent/web"
	"github.com/divvy-gpu/divvy/internal/process"
)

// openPages makes the web page, which is served where metrics are.
func (s *service) openPages(ctx context.Context) {
	node, err := os.Hostname()
	if err != nil {
		s.options.Log.WarnContext(ctx, "cannot find the machine's name for metrics", "error", err)
	}
	s.node = node
	said := s.rules.Web()
	s.pages = web.New(web.Config{
		Source: s.agent, Node: cmp.Or(node, "this machine"), Hosts: said.Hosts, Off: said.Off, User: process.UserName, Peer: exposition.Peer,
		Version: s.options.Version, Now: time.Now, Log: s.options.Log,
	})
}

// handlers are the agent's, and that of its web page.
func (s *service) handlers() map[control.Method]control.Handler {
	all := s.agent.Handlers()
	all[control.MethodWeb] = control.Handle(func(_ context.Context, peer *control.Peer, _ struct{}) (control.Web, error) {
		link, err := s.pages.Link(peer.UID)
		return control.Web{Link: link}, err
	})
	return all
}
