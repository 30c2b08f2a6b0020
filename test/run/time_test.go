package run

import (
	"syscall"
	"testing"
)

// These tests check how GPU time is divided, by the simulated driver's own record.
// They compare orders and coarse sums; test/bench/time measures the accuracy.

func TestFixedShareLeavesAnIdleGPUIdle(t *testing.T) {
	h := newHost(t)
	w := h.work(fixed(25))
	h.settled("fixed 25, alone", func(p []float64) bool { return p[0] > 10 && p[0] < 40 }, w)
}

func TestFixedShareOfManyProcesses(t *testing.T) {
	h := newHost(t)
	script := `"$0" load --seconds 3600 >/dev/null & "$0" load --seconds 3600 --graph 20 --ns 50000 >/dev/null & exec "$0" load --seconds 3600`
	s := h.hold(append([]string{"--memory", "2Gi", "--name", "group"}, fixed(30)...), "sh", "-c", script, h.bench())
	var group []worker
	t.Cleanup(func() {
		for _, w := range group {
			_ = syscall.Kill(w.pid, syscall.SIGKILL)
		}
		s.end()
	})
	h.eventually("all three work", func() bool { return len(h.truth().Own) == 3 })
	for pid := range h.truth().Own {
		group = append(group, worker{s, pid})
	}
	h.settled("fixed 30, three processes", func(p []float64) bool { sum := p[0] + p[1] + p[2]; return sum > 10 && sum < 45 }, group...)
}

func TestWeightsAndTheirChange(t *testing.T) {
	h := newHost(t)
	light := h.work([]string{"--weight", "1", "--name", "light"})
	h.settled("alone", func(p []float64) bool { return p[0] > 60 }, light)
	heavy := h.work([]string{"--weight", "3", "--name", "heavy"})
	h.settled("1 and 3", func(p []float64) bool { return p[1] > 1.8*p[0] && p[0]+p[1] > 60 }, light, heavy)
	h.ok("set", "light", "--simgpu", "m", "--weight", "9")
	h.settled("9 and 3", func(p []float64) bool { return p[0] > 1.8*p[1] && p[0]+p[1] > 60 }, light, heavy)
	heavy.kill()
	h.settled("alone again", func(p []float64) bool { return p[0] > 60 }, light)
}

func TestCoresAndPolicyChange(t *testing.T) {
	h := newHost(t)
	a, b := h.work(append(fixed(20), "--name", "a")), h.work(append(fixed(60), "--name", "b"))
	h.settled("20 and 60", func(p []float64) bool { return p[1] > 1.8*p[0] && p[0]+p[1] < 92 }, a, b)
	h.ok("set", "b", "--simgpu", "m", "--cores", "20")
	h.ok("set", "a", "--simgpu", "m", "--cores", "60")
	h.settled("60 and 20", func(p []float64) bool { return p[0] > 1.8*p[1] && p[0]+p[1] < 92 }, a, b)
	h.ok("set", "a", "--simgpu", "m", "--policy", "burst")
	b.kill()
	h.settled("burst, alone", func(p []float64) bool { return p[0] > 75 }, a)
	h.ok("set", "a", "--simgpu", "m", "--max-cores", "65", "--cores", "20")
	h.settled("burst to 65, alone", func(p []float64) bool { return p[0] > 30 && p[0] < 75 }, a)
}

func TestOfflineGivesWay(t *testing.T) {
	h := newHost(t)
	offline := h.work([]string{"--class", "offline"}, "--ns", "200000")
	h.settled("offline, alone", func(p []float64) bool { return p[0] > 60 }, offline)
	online := h.work([]string{"--class", "online"})
	h.settled("beside online work without a gap", func(p []float64) bool { return p[0] < 20 && p[1] > 60 }, offline, online)
	online.kill()
	h.settled("offline, alone again", func(p []float64) bool { return p[0] > 60 }, offline)
}

func TestTenantsOutliveTheAgent(t *testing.T) {
	h := newHost(t)
	a, b := h.work(fixed(20)), h.work(fixed(60))
	divided := func(p []float64) bool { return p[1] > 1.8*p[0] && p[0] > 5 && p[0]+p[1] < 92 }
	h.settled("20 and 60", divided, a, b)
	killed := h.agentPID()
	if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	h.settled("without an agent", divided, a, b)
	if next := h.agentPID(); next == killed || len(h.list().Tenants) != 2 {
		t.Errorf("agent %d after %d, tenants %+v", next, killed, h.list().Tenants)
	}
	h.settled("under the next agent", divided, a, b)
}

func TestTenantsDoNotWaitForAStoppedAgent(t *testing.T) {
	h := newHost(t)
	a, b := h.work([]string{"--weight", "1"}), h.work([]string{"--weight", "3"})
	h.settled("1 and 3", func(p []float64) bool { return p[1] > 1.8*p[0] }, a, b)
	agent := h.agentPID()
	if err := syscall.Kill(agent, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(agent, syscall.SIGCONT) })
	h.settled("beside a stopped agent", func(p []float64) bool { return p[1] > 1.5*p[0] && p[0] > 5 }, a, b)
	if err := syscall.Kill(agent, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	h.settled("when it goes on", func(p []float64) bool { return p[1] > 1.8*p[0] && p[0]+p[1] > 60 }, a, b)
}

// A stopped process takes no GPU time away from others.
func TestStoppedTenantStallsNobody(t *testing.T) {
	h := newHost(t)
	a, b := h.work(nil), h.work(nil)
	if err := syscall.Kill(a.pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	h.settled("beside a stopped tenant", func(p []float64) bool { return p[0] < 5 && p[1] > 60 }, a, b)
	if err := syscall.Kill(a.pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	h.settled("when it goes on", func(p []float64) bool { return p[0] > 25 && p[1] > 25 }, a, b)
}

// A share that is killed with a full queue frees the GPU at once.
func TestKilledTenantLeavesTheGPU(t *testing.T) {
	h := newHost(t)
	a, b := h.work(fixed(50)), h.work([]string{"--class", "offline"}, "--ns", "200000")
	busy(t, h, a)
	a.kill()
	h.settled("when the other is gone", func(p []float64) bool { return p[0] > 60 }, b)
	if _, left := h.truth().Own[a.pid]; left {
		t.Error("the dead process is still on the GPU")
	}
}
