package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
)

// unprivileged is the id under which tests that run as root try what an
// ordinary user can do.
const unprivileged = 54321

// stage is a folder with a copy of divvy-enter and two files to bind, open to
// the unprivileged user.
type stage struct {
	enter          Enter
	source, target string
	credential     *syscall.Credential
}

// stages calls f once as this user and, as root, once more as another.
func stages(t *testing.T, f func(t *testing.T, s stage)) {
	t.Helper()
	as := map[string]*syscall.Credential{"own user": nil}
	if os.Getuid() == 0 {
		as["unprivileged"] = &syscall.Credential{Uid: unprivileged, Gid: unprivileged}
	}
	for name, credential := range as {
		t.Run(name, func(t *testing.T) { f(t, newStage(t, credential)) })
	}
}

func newStage(t *testing.T, credential *syscall.Credential) stage {
	t.Helper()
	dir, err := os.MkdirTemp("", "divvy-launch-") // t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := stage{
		enter: Enter(filepath.Join(dir, "divvy-enter")), credential: credential,
		source: filepath.Join(dir, "source"), target: filepath.Join(dir, "target"),
	}
	program, err := os.ReadFile(installtest.Tree(t).Program("divvy-enter"))
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string]string{string(s.enter): string(program), s.source: "ours\n", s.target: "theirs\n"} {
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
		if credential != nil {
			if err := os.Chown(path, int(credential.Uid), int(credential.Gid)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := s.cmd(Plan{Program: string(s.enter), Args: []string{"", "--probe"}}).CombinedOutput(); err != nil {
		installtest.Missing(t, "userns", errors.New(string(out)))
	}
	return s
}

func (s stage) cmd(p Plan) *exec.Cmd {
	cmd := exec.Command(p.Program, p.Args[1:]...)
	cmd.Env = p.Env
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.credential}
	return cmd
}

// cover binds source over target.
func (s stage) cover(readOnly bool) edits.Edits {
	return edits.Edits{Binds: []edits.Bind{{Source: s.source, Target: s.target, ReadOnly: readOnly}}}
}

// run returns what a command prints inside the edits.
func (s stage) run(t *testing.T, e edits.Edits, command ...string) string {
	t.Helper()
	out, err := s.cmd(s.enter.Plan(e, os.Environ(), command)).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(command, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// status returns how a command ends inside the edits.
func (s stage) status(t *testing.T, e edits.Edits, command ...string) (syscall.WaitStatus, string) {
	t.Helper()
	cmd := s.cmd(s.enter.Plan(e, os.Environ(), command))
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.Sys().(syscall.WaitStatus), string(out)
}

func TestPlan(t *testing.T) {
	e := edits.Edits{
		Binds: []edits.Bind{{Source: "/a", Target: "/b"}, {Source: "/c", Target: "/d", ReadOnly: true}, {Source: "/e", Target: "/f", Tree: true}},
		Env:   []edits.Env{{Name: "X", Value: "1"}},
	}
	got := Enter("/enter").Plan(e, []string{"Y=2"}, []string{"python", "--", "x.py"})
	contained := e
	contained.Contain = true
	if args := Enter("/enter").Plan(contained, nil, []string{"x"}).Args; args[1] != "--contain" || args[2] != "--bind" {
		t.Errorf("contained: %q", args)
	}
	want := []string{"/enter", "--bind", "/a", "/b", "--bind-ro", "/c", "/d", "--bind-tree", "/e", "/f", "--", "python", "--", "x.py"}
	if got.Program != "/enter" || !slices.Equal(got.Args, want) || !slices.Equal(got.Env, []string{"Y=2", "X=1"}) {
		t.Errorf("got %+v", got)
	}
}

func TestCoversForTheCommandAlone(t *testing.T) {
	stages(t, func(t *testing.T, s stage) {
		if got := s.run(t, s.cover(false), "cat", s.target); got != "ours" {
			t.Errorf("inside: %q", got)
		}
		// Descendants with nothing of the environment left.
		if got := s.run(t, s.cover(false), "sh", "-c", "env -i /bin/sh -c '/bin/cat "+s.target+"'"); got != "ours" {
			t.Errorf("without environment: %q", got)
		}
		outside, err := os.ReadFile(s.target)
		if err != nil || string(outside) != "theirs\n" {
			t.Errorf("outside: %q, %v", outside, err)
		}
	})
}

// What the caller leaves open shows what is inside, or is closed, and so is the directory where the command begins. The null
// device leads nowhere, whatever it covers.
func TestContain(t *testing.T) {
	stages(t, func(t *testing.T, s stage) {
		dir := filepath.Dir(s.target)
		cover, covered := filepath.Join(dir, "cover"), filepath.Join(dir, "covered")
		for path, name := range map[string]string{cover: "inside", covered: "outside"} {
			if err := errors.Join(os.Mkdir(path, 0o755), os.WriteFile(filepath.Join(path, name), nil, 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		e := s.cover(false)
		e.Contain = true
		e.Binds = append(e.Binds, edits.Bind{Source: cover, Target: covered, ReadOnly: true}, edits.Bind{Source: s.source, Target: "/dev/full"}, edits.Bind{Source: s.source, Target: "/dev/null"})
		script := "cat <&7; ls; for f in 0 3; do cat /proc/self/fd/$f/target; done; for f in 4 5 6 7 8; do if [ -e /proc/self/fd/$f ]; then echo $f; fi; done"
		cmd := s.cmd(s.enter.Plan(e, os.Environ(), []string{"sh", "-c", script}))
		opened := func(path string) *os.File {
			file, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { file.Close() })
			return file
		}
		cmd.Dir, cmd.Stdin = covered, opened(dir)
		cmd.ExtraFiles = []*os.File{opened(dir), opened(covered), opened("/dev/full"), opened("/dev/zero"), opened(s.source), opened("/dev/null")}
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.Output()
		if want := "ours\ninside\nours\nours\n6\n7\n8\n"; err != nil || string(out) != want {
			t.Errorf("%v: it prints %q, want %q", err, out, want)
		}
		want := "divvy: descriptor 4 is closed for the command: " + covered + " is hidden from it\ndivvy: descriptor 5 is closed for the command: /dev/full is hidden from it\n"
		if said.String() != want {
			t.Errorf("it says %q", said.String())
		}
	})
}

func TestBindsAreMadeInOrder(t *testing.T) {
	stages(t, func(t *testing.T, s stage) {
		place := string(s.enter)
		e := edits.Edits{Binds: append([]edits.Bind{{Source: s.target, Target: place}}, s.cover(false).Binds...)}
		if got := s.run(t, e, "cat", place, s.target); got != "theirs\nours" {
			t.Errorf("got %q", got)
		}
	})
}

func TestReadOnlyBind(t *testing.T) {
	stages(t, func(t *testing.T, s stage) {
		status, out := s.status(t, s.cover(true), "sh", "-c", "echo changed > "+s.target)
		if status.ExitStatus() == 0 || !strings.Contains(out, "ead-only") {
			t.Errorf("exit status %d: %s", status.ExitStatus(), out)
		}
		if got := s.run(t, s.cover(false), "sh", "-c", "echo changed > "+s.target+"; cat "+s.source); got != "changed" {
			t.Errorf("a bind that may be written: %q", got)
		}
	})
}

func TestCommandIsWhatItWouldBeOutside(t *testing.T) {
	stages(t, func(t *testing.T, s stage) {
		const self = `id -u; id -g; pwd; umask; grep -E '^(CapPrm|CapEff|CapInh|CapAmb|NoNewPrivs|SigIgn|SigBlk)' /proc/self/status; echo "$MARK"; cat <&3`
		state := func(program string, args ...string) string {
			cmd := s.cmd(Plan{Program: program, Args: append([]string{""}, args...), Env: append(os.Environ(), "MARK=kept")})
			cmd.Dir = filepath.Dir(s.source)
			file, err := os.Open(s.source)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			cmd.ExtraFiles = []*os.File{file}
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			return string(out)
		}
		outside := state("/bin/sh", "-c", self)
		inside := state(string(s.enter), s.enter.Plan(s.cover(false), nil, []string{"/bin/sh", "-c", self}).Args[1:]...)
		if inside != outside {
			t.Errorf("inside:\n%s\noutside:\n%s", inside, outside)
		}
	})
}

func TestCommandTakesOverTheProcess(t *testing.T) {
	stages(t, func(t *testing.T, s stage) {
		var out strings.Builder
		cmd := s.cmd(s.enter.Plan(s.cover(false), os.Environ(), []string{"sh", "-c", "echo $$"}))
		cmd.Stdout = &out
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(out.String()); got != strconv.Itoa(cmd.Process.Pid) {
			t.Errorf("the command is process %s, want %d", got, cmd.Process.Pid)
		}
	})
}

func TestHowItEnds(t *testing.T) {
	stages(t, func(t *testing.T, s stage) {
		for _, test := range []struct {
			command []string
			exit    int
			signal  syscall.Signal
			says    string
		}{
			{[]string{"sh", "-c", "exit 0"}, 0, 0, ""},
			{[]string{"sh", "-c", "exit 7"}, 7, 0, ""},
			{[]string{"sh", "-c", "kill -TERM $$"}, -1, syscall.SIGTERM, ""},
			{[]string{"sh", "-c", "kill -KILL $$"}, -1, syscall.SIGKILL, ""},
			{[]string{"no-such-program"}, 127, 0, "not found"},
			{[]string{"/no/such/program"}, 127, 0, "not found"},
			{[]string{filepath.Dir(s.source)}, 126, 0, "ermission"},
		} {
			for _, e := range []edits.Edits{{}, s.cover(false)} {
				status, out := s.status(t, e, test.command...)
				if status.ExitStatus() != test.exit || test.signal != 0 && status.Signal() != test.signal || !strings.Contains(out, test.says) {
					t.Errorf("%q: status %d, signal %v, %q", test.command, status.ExitStatus(), status.Signal(), out)
				}
			}
		}
	})
}

func TestIgnoredSignalsStayIgnored(t *testing.T) {
	stages(t, func(t *testing.T, s stage) {
		line := fmt.Sprintf("trap '' INT; exec %s --bind %s %s -- sh -c 'kill -INT $$; echo alive'", s.enter, s.source, s.target)
		out, err := s.cmd(Plan{Program: "/bin/sh", Args: []string{"", "-c", line}, Env: os.Environ()}).CombinedOutput()
		if err != nil || string(out) != "alive\n" {
			t.Errorf("%q, %v", out, err)
		}
	})
}

func TestWhatCannotBeBound(t *testing.T) {
	stages(t, func(t *testing.T, s stage) {
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(s.target, link); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Dir(link), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Dir(filepath.Dir(link)), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, test := range []struct{ source, target, says string }{
			{"/no/such/file", s.target, "No such file"},
			{s.source, "/no/such/file", "No such file"},
			{s.source, link, "symbolic link"},
			{link, s.target, "symbolic link"},
			{"source", s.target, "not absolute"},
		} {
			e := edits.Edits{Binds: []edits.Bind{{Source: test.source, Target: test.target}}}
			status, out := s.status(t, e, "cat", s.target)
			if status.ExitStatus() != 125 || !strings.Contains(out, test.says) || strings.Contains(out, "theirs") {
				t.Errorf("%s over %s: status %d, %q", test.source, test.target, status.ExitStatus(), out)
			}
		}
	})
}

func TestWrongUse(t *testing.T) {
	s := newStage(t, nil)
	for _, args := range [][]string{{}, {"--"}, {"--bind"}, {"--bind", "/a"}, {"--bind", s.source, s.target}, {"--other", "/a", "/b", "--", "true"}, {"true"}} {
		out, err := exec.Command(string(s.enter), args...).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 125 || !strings.Contains(string(out), "divvy run") {
			t.Errorf("%q: %v, %q", args, err, out)
		}
	}
}

func TestOrdinaryUserCannotUndo(t *testing.T) {
	stages(t, func(t *testing.T, s stage) {
		if s.credential == nil && os.Getuid() == 0 {
			t.Skip("root may unmount; the limits guard against accident there")
		}
		got := s.run(t, s.cover(false), "sh", "-c", "umount "+s.target+" 2>/dev/null; cat "+s.target)
		if got != "ours" {
			t.Errorf("after umount: %q", got)
		}
		// A namespace within the namespace comes with the right to unmount,
		// though not what it inherited.
		got = s.run(t, s.cover(false), "sh", "-c",
			"unshare --user --map-root-user --mount sh -c 'umount "+s.target+" 2>/dev/null; cat "+s.target+"'")
		if got != "ours" {
			t.Errorf("after umount in a namespace within: %q", got)
		}
	})
}

func TestProbe(t *testing.T) {
	s := newStage(t, nil)
	if err := s.enter.Probe(t.Context()); err != nil {
		t.Errorf("Probe: %v", err)
	}
	if err := Enter("/no/such/divvy-enter").Probe(t.Context()); err == nil || errors.Is(err, ErrNamespaces) {
		t.Errorf("Probe of nothing: %v", err)
	}
	// A user namespace in which no further one may be made, entered without
	// any capability, is a machine that forbids them.
	forbidden := filepath.Join(filepath.Dir(s.source), "forbidden")
	script := fmt.Sprintf("#!/bin/sh\nexec unshare --user --map-root-user sh -c 'echo 0 > /proc/sys/user/max_user_namespaces; "+
		"exec setpriv --inh-caps=-all --bounding-set=-all %s --probe'\n", s.enter)
	if err := os.WriteFile(forbidden, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	err := Enter(forbidden).Probe(context.Background())
	if !errors.Is(err, ErrNamespaces) || !strings.Contains(err.Error(), "No space left") {
		t.Errorf("Probe where namespaces are used up: %v", err)
	}
}
