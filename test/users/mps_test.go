package users

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// report is the simulated driver's own record.
func (s *server) report() *simgpu.Report {
	s.t.Helper()
	r, err := s.Report(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// mpsServers are the processes that serve the clients that there are.
func mpsServers(r *simgpu.Report) (servers []int) {
	for _, p := range r.Processes {
		if p.MPSServer != 0 && !slices.Contains(servers, p.MPSServer) {
			servers = append(servers, p.MPSServer)
		}
	}
	return servers
}

// A system agent takes a GPU of MPS for its server alone, so that no program passes it by, serves one user there at a time,
// survives its own death, and gives the GPU back as it was.
func TestMPSOfUsers(t *testing.T) {
	s := newServer(t)
	s.write("/etc/divvy/agent.yaml", head+"backends: {mps: [1]}\n")
	first := s.agent()
	flags := []string{"--backend", "mps", "--memory", "2Gi", "--cores", "30"}
	a := s.hold("u1", "1Gi", append(flags, "--name", "a")...)
	r := s.report()
	if got := r.GPUs[1].ComputeMode; got != "exclusive-process" {
		t.Errorf("the compute mode is %s", got)
	}
	servers := mpsServers(r)
	if len(servers) != 1 {
		t.Fatalf("the servers are %v", servers)
	}
	if o := s.run("u2", "env", "CUDA_VISIBLE_DEVICES=1", "gpubench", "hold", "--bytes", "1Mi", "--seconds", "1"); o.status == 0 || !strings.Contains(o.out, "CUDA_ERROR_DEVICE_UNAVAILABLE") && !strings.Contains(o.out, "CUDA_ERROR_MPS_CONNECTION_FAILED") {
		t.Errorf("a program without a share: %+v", o)
	}
	reach := []string{"sh", "-c", "ls -d /run/divvy/mps/GPU-*/pipe/control 2>&1"}
	if o := s.run("u1", reach...); o.status != 0 {
		t.Errorf("who has a share does not reach the control daemon: %+v", o)
	}
	if o := s.run("u2", reach...); o.status == 0 {
		t.Errorf("who has no share reaches the control daemon: %+v", o)
	}
	s.refused("u2", []string{"shares of user u1", "one user at a time"}, append([]string{"divvy", "run"}, append(flags, "--", "true")...)...)
	b := s.hold("u1", "1Gi", append(flags, "--name", "b")...)
	if got := mpsServers(s.report()); !slices.Equal(got, servers) {
		t.Errorf("the servers are %v, and were %v", got, servers)
	}
	first.kill(syscall.SIGKILL)
	s.agent()
	s.hold("u1", "1Gi", append(flags, "--name", "c")...).end()
	if got := mpsServers(s.report()); !slices.Equal(got, servers) {
		t.Errorf("with the next agent the servers are %v, and were %v", got, servers)
	}
	if l := s.list(); len(l.Outside) != 0 {
		t.Errorf("without a share: %+v", l.Outside)
	}
	waiting := s.start("u2", false, append([]string{"divvy", "run", "--wait"}, append(flags, "--", "gpubench", "info")...)...)
	s.eventually("another user waits", func() bool { return len(s.list().Waiting) == 1 })
	a.end()
	b.end()
	if status := waiting.wait(); status != 0 {
		t.Errorf("the other user's program ended with %d: %s", status, waiting.said.String())
	}
}

// Where the administrator lets several users share a server their grants say that they are not isolated. The GPU is as it
// was when the form ends.
func TestMPSOfSeveralUsers(t *testing.T) {
	s := newServer(t, "driver.version=555.58.02")
	s.write("/etc/divvy/agent.yaml", head+"backends: {mps: {gpus: [1], multiUser: true}}\n")
	first := s.agent()
	flags := []string{"--backend", "mps", "--memory", "2Gi", "--cores", "30"}
	a := s.hold("u1", "1Gi", append(flags, "--name", "a")...)
	b := s.hold("u2", "1Gi", append(flags, "--name", "b")...)
	if got := mpsServers(s.report()); len(got) != 1 {
		t.Errorf("the servers are %v", got)
	}
	share, _ := find(s.list(), "u2", "b")
	if got := share.Shares[0].Mechanism; got != "MPS, ceiling 30 % of SMs, not isolated from other users' shares" {
		t.Errorf("the grant says %q", got)
	}
	a.end()
	b.end()
	s.eventually("the shares have ended", func() bool { return len(s.list().Tenants) == 0 })
	first.kill(syscall.SIGTERM)
	s.write("/etc/divvy/agent.yaml", head)
	s.agent()
	s.eventually("the GPU is as it was", func() bool { return s.report().GPUs[1].ComputeMode == "default" })
	if o := s.run("u2", "env", "CUDA_VISIBLE_DEVICES=1", "gpubench", "info"); o.status != 0 {
		t.Errorf("a program without a share: %+v", o)
	}
}

// A daemon that a user runs where programs look by themselves is told of, and goes on.
func TestMPSOfSomebodyElse(t *testing.T) {
	s := newServer(t)
	s.write("/etc/divvy/agent.yaml", head+"backends: {mps: [1]}\n")
	const theirs = "mkdir -p /tmp/nvidia-mps && nvidia-cuda-mps-control -d && echo runs"
	if o := s.run("u1", "sh", "-c", "PATH=$(dirname $(find /opt/gpus -name nvidia-cuda-mps-control)):$PATH; export CUDA_MPS_LOG_DIRECTORY=/tmp; "+theirs); !strings.Contains(o.out, "runs") {
		t.Fatalf("a daemon of a user's: %+v", o)
	}
	s.agent()
	s.hold("u2", "1Gi", "--backend", "mps", "--memory", "2Gi")
	if l := s.list(); !slices.ContainsFunc(l.Events, func(e control.Event) bool {
		return strings.Contains(e.Text, "of user u1 at /tmp/nvidia-mps is an MPS control daemon that is not Divvy's")
	}) {
		t.Errorf("events: %+v", l.Events)
	}
	if o := s.run("u2", "divvy", "doctor"); !strings.Contains(o.out, "of user u1 at /tmp/nvidia-mps") {
		t.Errorf("doctor: %+v", o)
	}
	if o := s.run("u1", "sh", "-c", "PATH=$(dirname $(find /opt/gpus -name nvidia-cuda-mps-control)):$PATH; echo get_default_active_thread_percentage | nvidia-cuda-mps-control"); !strings.Contains(o.out, "100.0") {
		t.Errorf("the user's daemon: %+v", o)
	}
}

// Shares of MPS that a user's own agent made go on when a system agent takes them over: with their ceiling and limit, beside
// new ones of another backend. Their daemon ends with the last of them, and the GPU has the form then that it was given.
func TestMPSIsTakenOver(t *testing.T) {
	s := newServer(t)
	flags := []string{"--gpu", "1", "--backend", "mps", "--memory", "4Gi", "--cores", "30", "--name"}
	a, b := s.hold("u1", "1Gi", append(flags, "a")...), s.hold("u1", "1Gi", append(flags, "b")...)
	own := s.ownAgent("u1")
	servers := mpsServers(s.report())
	if len(servers) != 1 {
		t.Fatalf("the servers are %v", servers)
	}
	s.write("/etc/divvy/agent.yaml", head+"backends: {mps: [1]}\n")
	first := s.agent()
	s.eventually("the own agent has ended", func() bool { return !s.alive(own) })
	goOn := func(programs int) {
		t.Helper()
		r, found := s.report(), 0
		for _, p := range r.Processes {
			if p.Command == "gpubench" {
				found++
				if g := p.GPUs[0]; p.MPSServer != servers[0] || g.Multiprocessors != 33 || g.MemoryLimit != 4*gib {
					t.Errorf("a program has %+v", p)
				}
			}
		}
		if found != programs {
			t.Errorf("%d programs run, want %d", found, programs)
		}
		if got := r.GPUs[1].ComputeMode; got != "default" {
			t.Errorf("the compute mode is %s", got)
		}
	}
	goOn(2)
	if l := s.list(); !slices.ContainsFunc(l.Events, func(e control.Event) bool {
		return strings.Contains(e.Text, "Nobody supervises that daemon") && strings.Contains(e.Text, "start the share's command again")
	}) {
		t.Errorf("events: %+v", l.Events)
	}
	s.refused("u1", []string{"its shares of backend slice have to end first"}, "divvy", "run", "--gpu", "1", "--backend", "mps", "--memory", "1Gi", "--", "true")
	a.end()
	s.eventually("one share is left", func() bool { return len(s.list().Tenants) == 1 })
	goOn(1)
	first.kill(syscall.SIGKILL)
	s.agent()
	goOn(1)
	b.end()
	s.eventually("no share is left", func() bool { return len(s.list().Tenants) == 0 })
	s.eventually("their daemon has ended", func() bool { return s.run("root", "pgrep", "-u", "u1", "-f", "nvidia-cuda-mps").status != 0 })
	s.ok("u2", "divvy", "run", "--wait", "--gpu", "1", "--backend", "mps", "--memory", "1Gi", "--", "gpubench", "info")
}

// A ceiling of SMs is no part of GPU time: a share whose programs keep theirs after a takeover is not held back in time too.
func TestMPSTimeAfterTakeover(t *testing.T) {
	const window, most = 500 * time.Millisecond, 0.6 // of the time; with 30 of 100 cores it would be 0.3
	s := newServer(t)
	s.start("u1", true, "divvy", "run", "--gpu", "1", "--backend", "mps", "--memory", "4Gi", "--cores", "30", "--name", "a", "--",
		"sh", "-c", "echo runs; exec gpubench load --ns 200000 --seconds 3600")
	own := s.ownAgent("u1")
	s.write("/etc/divvy/agent.yaml", head+"backends: {mps: [1]}\n")
	s.agent()
	s.eventually("the own agent has ended", func() bool { return !s.alive(own) })
	s.eventually("the share is taken over", func() bool { return len(s.list().Tenants) == 1 })
	share, _ := find(s.list(), "u1", "a")
	if got := share.Shares[0]; got.Cores != 0 || got.Backend != v1alpha1.BackendSlice {
		t.Errorf("it goes on with %+v", got)
	}
	since, busy, enough := time.Now(), s.report().GPUs[1].BusyNs, 0
	s.eventually("its program has most of the time", func() bool {
		passed := time.Since(since)
		if passed < window {
			return false
		}
		now := s.report().GPUs[1].BusyNs
		part := float64(now-busy) / float64(passed)
		since, busy = time.Now(), now
		t.Logf("%.0f %% of the time", 100*part)
		if enough++; part < most {
			enough = 0
		}
		return enough == 4 // what was launched before the takeover is over by then
	})
}
