package run

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/internal/remote/relay"
)

// one is a server with one client.
func one(t *testing.T) (*server, *host) {
	t.Helper()
	all := newServers(t, 1)
	return all[0], newClient(t, all)
}

// A share on another host has the limit of any share, as the oracle there sees it.
func TestHostsKeepTheLimit(t *testing.T) {
	s, c := one(t)
	alloc := []string{s.bench(), "alloc", "--bytes", "1Gi", "--count", "20"}
	away := c.runOn(s.name, append([]string{"--memory", "8Gi", "--"}, alloc...)...)
	local := s.run(append([]string{"--memory", "8Gi", "--"}, alloc...)...)
	if away.status != local.status || !strings.Contains(away.out, "CUDA_ERROR_OUT_OF_MEMORY") || !strings.Contains(away.out, `"allocations":7,`) {
		t.Errorf("%+v, and in a local share %+v", away, local)
	}
	two := c.stepsOf([]string{"--remote", s.name, "--memory", "8Gi"})
	two.want("5 GiB", two.do("5368709120"), "0")
	if used := s.bytesUsed(); used < 5*gib || used > 8*gib {
		t.Errorf("the oracle sees %d bytes", used)
	}
	two.want("4 GiB more", two.do("4294967296"), outOfMemory)
	two.want("in a child", two.do("fork"), notInitialized)
	two.want("as another program", two.do("exec"), "0")
	two.want("5 GiB there", two.do("5368709120"), "0")
	two.end()
	s.gone()
}

// Exit status and signals are the command's own, and so are errors before it. What it asks a driver is answered by the other
// host alone, with a mount namespace and without.
func TestHostsCommandIsTheProcess(t *testing.T) {
	s, c := one(t)
	for name, test := range map[string]struct {
		command []string
		status  int
	}{
		"its status": {[]string{"sh", "-c", "exit 7"}, 7},
		"a signal":   {[]string{"sh", "-c", "kill -TERM $$"}, 128 + int(syscall.SIGTERM)},
		"not found":  {[]string{"/nowhere/program"}, 127},
		// Lists have its beginning.
		"many files": {append([]string{"sh", "-c", "exit $#", "sh"}, slices.Repeat([]string{strings.Repeat("x", 100_000)}, 12)...), 12},
	} {
		if o := c.runOn(s.name, append([]string{"--memory", "1Gi", "--"}, test.command...)...); o.status != test.status {
			t.Errorf("%s: %+v, want status %d", name, o, test.status)
		}
	}
	for _, layer := range []string{"auto", "env"} {
		o := c.runOn(s.name, "--layer", layer, "--memory", "1Gi", "--", s.build("plain"))
		if o.status != 0 || o.out != refusedWithin {
			t.Errorf("layer %s: %+v, want %q", layer, o, refusedWithin)
		}
	}
	s.gone()
}

// Lists on both sides show the share, also inside of it.
func TestHostsAreListed(t *testing.T) {
	s, c := one(t)
	p := c.stepsOf([]string{"--remote", s.name, "--memory", "2Gi", "--cores", "30", "--name", "listed"})
	p.want("alloc", p.do("1048576"), "0")
	all := c.listAway()
	if len(all) != 1 || all[0].Name != "listed" || all[0].Host != s.name || all[0].State != relay.StateTaken || all[0].Memory != 2*gib || all[0].Cores != 30 ||
		len(all[0].GPUs) != 1 || !slices.Equal(all[0].Processes, []int{p.cmd.Process.Pid}) {
		t.Errorf("the client lists %+v", all)
	}
	if table := c.ok("ls"); !strings.Contains(table, "listed") || !strings.Contains(table, s.name) {
		t.Errorf("its table:\n%s", table)
	}
	share, there := s.tenant("listed")
	if !there || share.Shares[0].Limit != 2*gib || share.Shares[0].UUID != all[0].GPUs[0].UUID {
		t.Errorf("the server lists %+v", share)
	}
	if table := s.ok("ls", "--simgpu", "m"); !strings.Contains(table, "laptop") {
		t.Errorf("its table does not name the client:\n%s", table)
	}
	inside := c.runOn(s.name, "--memory", "1Gi", "--name", "inside", "--", filepath.Join(string(c.tree), "bin", "divvy"), "ls")
	if !strings.Contains(inside.out, "inside") || strings.Contains(inside.out, "listed") {
		t.Errorf("inside of another share: %+v", inside)
	}
	nested := c.runOn(s.name, "--memory", "1Gi", "--", filepath.Join(string(c.tree), "bin", "divvy"), "run", "--remote", s.name, "--", "true")
	if nested.status != 125 || !strings.Contains(nested.err, "inside a share") {
		t.Errorf("a share in a share: %+v", nested)
	}
	p.end()
	s.gone()
}

// Whoever dies, the command hears of it once, and lists say why.
func TestHostsDeaths(t *testing.T) {
	for name, test := range map[string]struct {
		kill  func(*testing.T, *server, *host)
		words string
		// listed is what the client's list says then.
		listed string
	}{
		"the relay":  {func(t *testing.T, _ *server, c *host) { killAll(t, c.relays()) }, "divvy relay on this machine", "has ended"},
		"the server": {func(_ *testing.T, s *server, _ *host) { s.stop() }, "127.0.0.1", "has ended"},
		"divvy stop": {func(_ *testing.T, s *server, _ *host) { s.ok("stop", "killed", "--simgpu", "m") }, "stopped", "stopped"},
		"the worker": {func(t *testing.T, s *server, _ *host) { _, serving := s.workers(); killAll(t, serving) }, "its worker at 127.0.0.1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, c := one(t)
			p := c.stepsOf([]string{"--remote", s.name, "--memory", "2Gi", "--name", "killed"})
			p.want("alloc", p.do("1073741824"), "0")
			test.kill(t, s, c)
			s.eventually("the memory is free", func() bool { return s.bytesUsed() == 0 })
			p.want("after it", p.do("1048576"), deviceUnavailable)
			p.want("and once more", p.do("1048576"), deviceUnavailable)
			if test.listed != "" {
				s.eventually("the list says why", func() bool {
					all := c.listAway()
					return len(all) == 1 && all[0].State == relay.StateEnded && strings.Contains(all[0].Why, test.listed)
				})
			}
			p.end()
			if said := strings.TrimSpace(p.said.String()); strings.Count(said, "\n") != 0 || !strings.Contains(said, test.words) {
				t.Errorf("it said %q", said)
			}
			s.gone()
			if name != "the server" { // the next command removes what a killed relay left
				c.runOn(s.name, "--memory", "1Gi", "--", "true")
			}
		})
	}
}

func killAll(t *testing.T, pids []int) {
	t.Helper()
	if len(pids) != 1 {
		t.Fatalf("processes %v, want one", pids)
	}
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// The command's death ends its share, with whatever it started last.
func TestHostsCommandDies(t *testing.T) {
	s, c := one(t)
	p := c.stepsOf([]string{"--remote", s.name, "--memory", "2Gi"})
	p.want("alloc", p.do("1073741824"), "0")
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.end()
	s.gone()
	c.eventually("the relay is gone", func() bool { return len(c.listAway()) == 0 })
}

// A server that stands still for less than 10 s is waited for.
func TestHostsPause(t *testing.T) {
	const pause, promised = 5 * time.Second, 9 * time.Second // the time that is promised is what is tested
	s, c := one(t)
	for try := 1; ; try++ {
		p := c.stepsOf([]string{"--remote", s.name, "--memory", "2Gi"})
		p.want("alloc", p.do("1048576"), "0")
		lasted, begun := make(chan time.Duration, 1), time.Now()
		if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		go func() {
			<-time.After(pause)
			_ = s.cmd.Process.Signal(syscall.SIGCONT)
			lasted <- time.Since(begun)
		}()
		got := p.do("1048576")
		p.end()
		// Where this process was given no processor the pause is not the one that is waited for.
		if took := <-lasted; took > promised && try < 5 {
			t.Logf("the server stood still for %v", took)
			s.gone()
			continue
		}
		p.want("while the server stands still", got, "0")
		if p.said.Len() > 0 {
			t.Errorf("it said %q", p.said.String())
		}
		s.gone()
		return
	}
}

// Of several hosts that one is taken on which the share fits best; one that is gone is named and left out, and where none
// has room each says why.
func TestHostsChoice(t *testing.T) {
	all := newServers(t, 2)
	a, b, c := all[0], all[1], newClient(t, all)
	both := names(a, b)
	keeper := b.hold([]string{"--memory", "40Gi"}, b.bench(), "hold", "--bytes", "1Mi")
	on := func(o outcome) string {
		for _, s := range []*server{a, b} {
			if strings.Contains(o.err, "the share is on "+s.name) {
				return s.name
			}
		}
		return o.err
	}
	if o := c.runOn(both, "--memory", "8Gi", "--", "true"); on(o) != b.name {
		t.Errorf("the fullest that has room is %s: %+v", b.name, o)
	}
	for _, hosts := range []string{both, "any"} {
		if o := c.runOn(hosts, "--memory", "60Gi", "--", "true"); on(o) != a.name {
			t.Errorf("of %s only %s has room: %+v", hosts, a.name, o)
		}
	}
	if o := c.runOn(both, "--memory", "100Gi", "--", "true"); o.status != 125 || strings.Count(o.err, a.name) != 1 || strings.Count(o.err, b.name) != 1 || strings.Count(o.err, "\n") != 2 {
		t.Errorf("nobody has room: %+v", o)
	}
	a.stop()
	if o := c.runOn(both, "--memory", "8Gi", "--", "true"); o.status != 0 || on(o) != b.name || !strings.Contains(o.err, "left out: "+a.name+": nobody listens") {
		t.Errorf("one host is gone: %+v", o)
	}
	if o := c.runOn(a.name, "--memory", "8Gi", "--", "true"); o.status != 125 || !strings.Contains(o.err, "nobody listens at "+a.name) {
		t.Errorf("the only host is gone: %+v", o)
	}
	if o := c.runOn(a.name+",nowhere.invalid", "--memory", "8Gi", "--", "true"); o.status != 125 || strings.Count(o.err, "nobody listens") != 1 || strings.Count(o.err, "nowhere.invalid: a bundle") != 1 {
		t.Errorf("no host is there, of which each is told once: %+v", o)
	}
	if o := c.runOn("nowhere.invalid", "--", "true"); o.status != 125 || !strings.Contains(o.err, "divvy serve admit") {
		t.Errorf("a host that did not let this client in: %+v", o)
	}
	keeper.end()
	a.gone()
	b.gone()
}

// With --when-used there is a share from the first program to the last.
func TestHostsWhenUsed(t *testing.T) {
	s, c := one(t)
	const script = `read -r line; "$0" hold --bytes 1Gi <"$1" & exec 3>"$1"; read -r line; exec 3>&-; wait; echo ended; read -r line`
	end := filepath.Join(t.TempDir(), "end")
	if err := syscall.Mkfifo(end, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := c.command(filepath.Join(string(c.tree), "bin", "divvy"), "run", "--remote", s.name, "--memory", "2Gi", "--when-used", "--name", "used", "--", "sh", "-c", script, s.bench(), end)
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out logged
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = input.Close(); _ = cmd.Wait() })
	state := func(want relay.State) func() bool {
		return func() bool { all := c.listAway(); return len(all) == 1 && all[0].State == want }
	}
	c.eventually("it waits for a program", state(relay.StateReady))
	if _, held := s.tenant("used"); held {
		t.Error("there is a share that nobody uses")
	}
	if o := c.divvy("stop", "used"); o.status == 0 || !strings.Contains(o.err, "on another host, "+s.name+": name it there") {
		t.Errorf("it cannot be stopped here: %+v", o)
	}
	fmt.Fprintln(input)
	c.eventually("it is used", func() bool { return strings.Contains(out.String(), "CUDA_SUCCESS") })
	if _, held := s.tenant("used"); !held || !state(relay.StateTaken)() {
		t.Error("there is no share that is used")
	}
	fmt.Fprintln(input)
	c.eventually("the program has ended", func() bool { return strings.Contains(out.String(), "ended") })
	c.eventually("the share is given back", state(relay.StateReady))
	s.gone()
	fmt.Fprintln(input)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// What a client may not have is refused in words that say what it may.
func TestHostsBounds(t *testing.T) {
	all := newServers(t, 1)
	s, c := all[0], newClient(t, all, "--memory", "4Gi", "--shares", "1")
	if o := c.runOn(s.name, "--memory", strconv.FormatUint(4*gib+1, 10), "--", "true"); o.status != 125 || !strings.Contains(o.err, "4Gi") {
		t.Errorf("a byte more: %+v", o)
	}
	p := c.stepsOf([]string{"--remote", s.name, "--memory", "1Gi"})
	if o := c.runOn(s.name, "--memory", "1Gi", "--", "true"); o.status != 125 || !strings.Contains(o.err, "shares") {
		t.Errorf("a share more: %+v", o)
	}
	p.end()
	s.gone()
}

// The API suite finds the driver's answers with a share on another host, but for what is not served through a network.
func TestHostsAnswerTheAPI(t *testing.T) {
	root := installtest.Root(t)
	built := func(path string) string { return filepath.Join(string(installtest.Tree(t)), "test", path) }
	if _, err := os.Stat(built("api/apisuite")); err != nil {
		installtest.Missing(t, "apisuite", fmt.Errorf("%w: `make test-go` builds it", err))
	}
	text, err := os.ReadFile(filepath.Join(root, "internal", "simgpu", "machines", "a100-80g.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	machine := filepath.Join(t.TempDir(), "counts.yaml")
	if err := os.WriteFile(machine, append(text, "\ndeadHandles: count\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Parallel()
	s := newServer(t, machine)
	c := newClient(t, []*server{s})
	for _, manner := range []string{"posted", "strict"} {
		value := strings.ReplaceAll(manner, "posted", "") // DIVVY_REMOTE has a word for the other one alone
		o := c.runOn(s.name, "--", "env", "DIVVY_REMOTE="+value, built("api/apisuite"), "--lacks", built("remote/api_lacks_"+manner),
			"--lacks", filepath.Join(root, "lib", "remote", "test", "api_lacks_hosts.txt"), "--lacks", filepath.Join(root, "lib", "simgpu", "api_lacks.txt"), "libcuda.so.1", "libnvidia-ml.so.1")
		if o.status != 0 || !strings.Contains(o.out+o.err, " 0 failures") {
			t.Errorf("%s: %+v", manner, o)
		}
	}
	s.gone()
}

// Who has waited for the end of a program may start the next one: that finds the memory of the first, however it ended.
func TestHostsNextProgramHasTheMemory(t *testing.T) {
	s, c := one(t)
	const rounds = 20
	const kill = `mkfifo "$1/line" "$1/end" || exit 9
i=0; while [ $((i += 1)) -le $2 ]; do
"$0" hold --bytes 5Gi <"$1/end" >"$1/line" & exec 3>"$1/end"
read -r said <"$1/line"; echo "$said"; kill -9 $!; wait $!; exec 3>&-
done`
	o := c.runOn(s.name, "--memory", "8Gi", "--", "sh", "-c", kill, s.bench(), t.TempDir(), strconv.Itoa(rounds))
	if n := strings.Count(o.out, "CUDA_SUCCESS"); n != rounds {
		t.Errorf("%d of %d programs had the memory: %+v", n, rounds, o)
	}
	s.gone()
}
