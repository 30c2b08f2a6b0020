package users

import (
	"path/filepath"
	"testing"

	"github.com/divvy-gpu/divvy/test/attack"
)

// `divvy stop` ends a share whose processes fork faster than they can be found.
func TestStopEndsAForkBomb(t *testing.T) {
	s := newServer(t)
	s.agent()
	if err := attack.BuildBomb(t.Context(), filepath.Join(s.Root, "opt")); err != nil {
		t.Fatal(err)
	}
	for _, layer := range []string{"namespace", "env"} {
		for _, way := range []string{"grow", "orphan"} {
			t.Run(layer+" "+way, func(t *testing.T) {
				args := append([]string{"divvy", "run", "--layer", layer, "--memory", "1Gi", "--name", "bomb", "--"}, attack.Bomb("/opt", way, 100)...)
				p := s.start("u1", true, args...)
				if o := s.run("u1", "divvy", "stop", "--grace", "1s", "bomb"); o.status != 0 {
					t.Errorf("stop: exit status %d, %s", o.status, o.err)
				}
				p.wait()
				s.eventually("the share has ended", func() bool { return len(s.list().Tenants) == 0 })
			})
		}
	}
}
