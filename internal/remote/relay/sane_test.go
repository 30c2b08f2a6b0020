package relay_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/remote/relay"
	"github.com/divvy-gpu/divvy/internal/remote/relay/relaytest"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// A share that a host makes up, and that no agent could have granted, is none.
func TestSharesThatMakeNoSense(t *testing.T) {
	authority := relaytest.NewAuthority(t)
	for name, change := range map[string]func(*wire.Granted){
		"no name":         func(g *wire.Granted) { g.Name = "" },
		"escape sequence": func(g *wire.Granted) { g.Name = "a\x1b[2J" },
		"zero byte":       func(g *wire.Granted) { g.Name = "a\x00" },
		"long name":       func(g *wire.Granted) { g.Name = strings.Repeat("a", 254) },
		"no GPU":          func(g *wire.Granted) { g.UUIDs = nil },
		"many GPUs":       func(g *wire.Granted) { g.UUIDs = make([]string, v1alpha1.MaxGPUs+1) },
		"negative cores":  func(g *wire.Granted) { g.Cores = -1 },
		"many cores":      func(g *wire.Granted) { g.Cores = v1alpha1.MaxCores + 1 },
	} {
		s := authority.Start(t, &relaytest.Server{Inventory: inventory(80), Take: func(take wire.Take) wire.Answer {
			a := granted(take)
			change(a.Granted)
			return a
		}})
		take := specFor(t, s.Address).Take
		share, err := relay.Find([]string{s.Address}).Take(t.Context(), take, func(string) {})
		refused := new(relay.RefusedByAll)
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), wire.ErrFrame.Error()) {
			t.Errorf("%s: %+v, %v", name, share, err)
		}
	}
}
