package arbiter_test

import (
	"testing"

	"github.com/divvy-gpu/divvy/internal/arbiter/model"
)

func TestDbg(t *testing.T) {
	for _, o := range []model.Options{{TickLate: 2 * ms}, {StampError: 10 * us}, {CostError: .1}, {Stall: 10 * ms, StallEvery: 200 * ms}} {
		o.Seed = 2
		m := model.New(o)
		got := parts(m, sec, 2, m.Add("a", fixed(30), model.Load{Kernel: 20 * us}), m.Add("b", fixed(70), model.Load{Kernel: 20 * us}))
		t.Log(o, got)
		t.Log(m.Debug())
	}
}
