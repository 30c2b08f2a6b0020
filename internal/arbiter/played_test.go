package arbiter_test

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/test/model"
)

// played is the simulated driver's own schedule on a virtual clock, told by its own program: neither the laws' replay
// nor the model's GPU has a line in common with it.
func played(t *testing.T) func(line string) ([]string, error) {
	t.Helper()
	build := os.Getenv("DIVVY_PREFIX")
	if build == "" {
		build = filepath.Join("..", "..", "build")
	}
	program := filepath.Join(build, "libexec", "divvy", "simgpuctl")
	if _, err := os.Stat(program); err != nil {
		t.Skipf("the simulated driver is not built: %v", err)
	}
	command := exec.Command(program, "play")
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := command.Wait(); err != nil {
			t.Errorf("play: %v", err)
		}
	})
	lines := bufio.NewReader(out)
	return func(line string) (answers []string, err error) {
		if _, err := io.WriteString(in, line+"\n"); err != nil {
			return nil, fmt.Errorf("tell the player: %w", err)
		}
		for {
			answer, err := lines.ReadString('\n')
			if err != nil {
				return nil, fmt.Errorf("hear the player: %w", err)
			}
			answers = append(answers, strings.TrimSpace(answer))
			if !strings.HasPrefix(answer, "stamp ") {
				return answers, nil
			}
		}
	}
}

// TestLawsOnTheSimulatedSchedule divides a GPU that the simulated driver plays: its record of executed time judges.
func TestLawsOnTheSimulatedSchedule(t *testing.T) {
	on := func(t *testing.T) *model.Model { return model.New(model.Options{Seed: 21, Play: played(t)}) }
	for _, load := range []struct {
		name string
		model.Load
	}{{"200us", model.Load{Kernel: 200 * us}}, {"1ms", model.Load{Kernel: ms}}, {"1ms sync", model.Load{Kernel: ms, Sync: 1}}, {"50ms", model.Load{Kernel: 50 * ms}}} {
		check := func(m *model.Model, most float64, promises []float64, tenants ...*model.Tenant) {
			t.Helper()
			m.Run(sec)
			got := gains(m, window(load.Load), tenants...)
			if err := m.Failed(); err != nil {
				t.Fatal(err)
			}
			t.Logf("%.2f of %v", got, promises)
			for i, promise := range promises {
				if math.Abs(got[i]-promise) > most {
					t.Errorf("share %d got %.2f of %v", i, got[i], promise)
				}
			}
		}
		most := 0.0
		if load.Sync > 0 {
			most = 2 // the program looks at the played GPU every 50 us only, which is its own time between launches
		}
		t.Run(load.name, func(t *testing.T) {
			m := on(t)
			check(m, most+1, []float64{50}, m.Add("a", fixed(50), load.Load))
			m = on(t)
			check(m, most+1.5, []float64{30, 70}, m.Add("a", fixed(30), load.Load), m.Add("b", fixed(70), load.Load))
			m = on(t)
			check(m, most+2, []float64{100. / 7, 200. / 7, 400. / 7}, m.Add("a", weighted(1), load.Load), m.Add("b", weighted(2), load.Load), m.Add("c", weighted(4), load.Load))
		})
	}
}
