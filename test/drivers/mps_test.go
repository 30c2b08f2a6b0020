package drivers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/internal/mps"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

const (
	// randomSessions are made for each driver, of mpsSeed.
	randomSessions = 250
	mpsSeed        = 14
	// stranger is a user who did not start the daemon.
	stranger = 65534
)

// control is a control daemon and the program that asks it.
type control struct{ mps.Daemon }

// answer is all that a session with the program comes to.
type answer struct {
	out, err string
	status   int
}

// String is the beginning of an answer.
func (a answer) String() string {
	return fmt.Sprintf("%.300q, %.300q, status %d", a.out, a.err, a.status)
}

// startControl starts a daemon, which the test ends. Every user can reach it. Its servers are such programs.
func startControl(t *testing.T, program, server string) control {
	t.Helper()
	dir, err := os.MkdirTemp("", "mps")
	must(t, err)
	must(t, os.Chmod(dir, 0o755))
	image, err := os.ReadFile(program)
	must(t, err)
	c := control{mps.Daemon{UUID: "GPU-0", Dirs: mps.DirsOf(dir, "GPU-0"), Program: filepath.Join(dir, mps.ControlProgram)}}
	must(t, os.WriteFile(c.Program, image, 0o755))
	if server != "" {
		must(t, os.WriteFile(filepath.Join(dir, mps.ServerProgram), []byte(server), 0o755))
	}
	must(t, os.Symlink(filepath.Dir(program), filepath.Join(dir, "simgpu"))) // leads simgpu's to its machine
	t.Cleanup(func() {
		must(t, errors.Join(c.End(context.WithoutCancel(t.Context())), os.RemoveAll(dir)))
	})
	_, err = c.Start(t.Context())
	must(t, err)
	return c
}

// say gives the program a session's commands.
func (c control) say(t *testing.T, session string, user *syscall.Credential, args ...string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Program, args...)
	cmd.Dir = "/"
	cmd.Env = []string{"CUDA_MPS_PIPE_DIRECTORY=" + c.Dirs.Pipe, "CUDA_MPS_LOG_DIRECTORY=" + c.Dirs.Log}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user}
	var out, said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(session), &out, &said
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("session %q: %v", session, err)
	}
	return answer{out.String(), said.String(), cmd.ProcessState.ExitCode()}
}

// stamps are what differs in the logs of two daemons: when, and which process. Connections are left out: whoever looks
// whether a daemon lives makes some.
var (
	stamps      = regexp.MustCompile(`(?m)^\[[^]]*\] `)
	connections = regexp.MustCompile(`(?m)^(Accepting connection\.\.\.|Unable to accept connection|User did not send valid credentials|NEW UI|UI closed)\n`)
)

// log is what the daemon wrote to its log, without its long lines, which the driver's daemon cuts.
func (c control) log(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.Dirs.Log, "control.log"))
	must(t, err)
	text = connections.ReplaceAll(stamps.ReplaceAll(text, nil), nil)
	lines := strings.Split(strings.ReplaceAll(string(text), c.Dirs.Pipe, "PIPE"), "\n")
	return slices.DeleteFunc(lines, func(line string) bool { return len(line) > 1000 })
}

// recordedSessions are those of testdata/mps, one in a line, written as Go strings without the quotes.
func recordedSessions(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("testdata/mps")
	must(t, err)
	var sessions []string
	for line := range strings.Lines(string(text)) {
		session, err := strconv.Unquote(`"` + strings.TrimSuffix(line, "\n") + `"`)
		must(t, err)
		sessions = append(sessions, session)
	}
	for _, length := range []int{255, 1024, 4094, 4095, 4096, 5000, 9000} {
		sessions = append(sessions, strings.Repeat("a", length)+"\n", strings.Repeat(" ", length)+"get_default_client_priority\n",
			"get_server_list "+strings.Repeat("x", length))
	}
	return sessions
}

// The words of random sessions. A server that is started ends while the next commands are answered, and the daemon with
// the connection: there is no valid start_server. After quit nothing is certain.
var (
	mpsCommands = []string{
		"get_server_list", "shutdown_server", "get_client_list", "get_device_client_list", "get_server_status",
		"get_default_active_thread_percentage", "set_default_active_thread_percentage", "set_default_active_thread_percentage",
		"get_active_thread_percentage", "set_active_thread_percentage",
		"get_default_device_pinned_mem_limit", "set_default_device_pinned_mem_limit", "set_default_device_pinned_mem_limit",
		"get_device_pinned_mem_limit", "set_device_pinned_mem_limit", "get_default_client_priority", "set_default_client_priority",
		"ps", "ps -p", "terminate_client", "start_server", "start_server --uid", "help", "Quit", "", "set_default",
	}
	mpsNumbers = []string{
		"0", "1", "2", "31", "32", "-0", "-1", "+3", "007", "0x10", "1e1", "3a", "a3", "-", "+", "2147483647", "2147483648", "4294967295",
		"4294967296", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "99999999999999999999999",
	}
	mpsSizes    = []string{"", "", "M", "G", "K", "T", "m", "g", "k", "GB", ".5G", "%", " G"}
	mpsReals    = []string{"30", "33.3", "100", "100.01", "0", "0.04", "0.05", "99.95", "-1", "nan", "inf", "0x1p4", "1e-9", "12,5", "0.45", ".", "50%"}
	mpsOptions  = []string{"-f", "-p", "-uid", "-t", "--", "abc", "\"5\"", "é", "GPU-0", "0=2G", "\x00"}
	mpsSpace    = []string{" ", " ", " ", "  ", "\t", " \v", "\r"}
	mpsLineEnds = []string{"\n", "\n", "\n", "\r\n", " \n"}
)

// randomSession is one to six commands.
func randomSession(r *rand.Rand) string {
	pick := func(from []string) string { return from[r.IntN(len(from))] }
	var text strings.Builder
	for range 1 + r.IntN(6) {
		text.WriteString(pick(mpsCommands))
		for range r.IntN(4) {
			word := [...]string{pick(mpsNumbers), pick(mpsNumbers) + pick(mpsSizes), pick(mpsReals), pick(mpsOptions)}[r.IntN(4)]
			text.WriteString(pick(mpsSpace) + word)
		}
		text.WriteString(pick(mpsLineEnds))
	}
	return text.String()
}

var validStart = regexp.MustCompile(`start_server\s+-uid\s`)

// controls starts the driver's control daemon and simgpu's on a machine with that driver.
func controls(t *testing.T, d Driver, server string) (real, simulated control) {
	t.Helper()
	machine, err := simgpu.Load("t4", "driver.version="+d.Version)
	must(t, err)
	instance, err := simgpu.NewStore(t.TempDir(), installtest.Tree(t)).Start(t.Context(), "mps", machine, "mps")
	must(t, err)
	return startControl(t, filepath.Join(d.Folder, mps.ControlProgram), server), startControl(t, filepath.Join(instance.Dir, mps.ControlProgram), server)
}

// controlled are the drivers that have the control daemon.
func controlled(t *testing.T) []Driver {
	t.Helper()
	drivers := slices.DeleteFunc(unpacked(t), func(d Driver) bool {
		_, err := os.Stat(filepath.Join(d.Folder, mps.ControlProgram))
		return err != nil
	})
	if len(drivers) < Fewest {
		t.Fatalf("%d drivers have %s, want %d", len(drivers), mps.ControlProgram, Fewest)
	}
	return drivers
}

func TestSimulatedControlAnswersAsTheDriver(t *testing.T) {
	for _, d := range controlled(t) {
		t.Run(d.Version, func(t *testing.T) {
			r := rand.New(rand.NewPCG(mpsSeed, 0))
			sessions := recordedSessions(t)
			for range randomSessions {
				sessions = append(sessions, randomSession(r))
			}
			sessions = slices.DeleteFunc(sessions, validStart.MatchString)
			real, simulated := controls(t, d, "")
			compareSessions(t, real, simulated, sessions, nil)
			compareOptions(t, real, simulated)
			if os.Geteuid() == 0 {
				compareSessions(t, real, simulated, append(sessions[:len(sessions):len(sessions)], "quit\n"),
					&syscall.Credential{Uid: stranger, Gid: stranger})
			} else {
				t.Log("not compared as another user: that needs root")
			}
			compareLogs(t, real.log(t), simulated.log(t))
		})
	}
}

// entries are the names, kinds and modes in the daemon's directories.
func (c control) entries(t *testing.T) (entries []string) {
	t.Helper()
	for _, dir := range []string{c.Dirs.Pipe, c.Dirs.Log} {
		found, err := os.ReadDir(dir)
		must(t, err)
		for _, entry := range found {
			info, err := entry.Info()
			must(t, err)
			entries = append(entries, info.Mode().String()+" "+entry.Name())
		}
	}
	return entries
}

// compareOptions compares what the program makes of its arguments while a daemon runs, and what the daemon has in its
// directories. How they are used each tells in its own words.
func compareOptions(t *testing.T, real, simulated control) {
	t.Helper()
	for _, args := range [][]string{
		{"-d"}, {"-f"}, {"-x"}, {"-h"}, {"--help"}, {"extra"}, {"-multiuser-server"}, {""}, {"-d", "-d"}, {"-d", "-f"}, {"-d", "extra"},
		{"-d", "-h"}, {"-h", "-d"}, {"-h", "extra"}, {"extra", "-h"}, {"-d", "-multiuser-server"}, {"-multiuser-server", "-f"},
	} {
		const session = "get_default_client_priority\n"
		want, got := real.say(t, session, nil, args...), simulated.say(t, session, nil, args...)
		if strings.HasPrefix(want.out, "CUDA MPS Control") && strings.HasPrefix(got.out, "nvidia-cuda-mps-control -d ") {
			want.out, got.out = "usage", "usage"
		}
		if want != got {
			t.Errorf("%q: %v\nsimgpu: %v", args, want, got)
		}
	}
	if want, got := real.entries(t), simulated.entries(t); !slices.Equal(want, got) {
		t.Errorf("the daemon's files: %q\nsimgpu's: %q", want, got)
	}
}

// compareSessions has both answer the same sessions as a user, nil for this one.
func compareSessions(t *testing.T, real, simulated control, sessions []string, user *syscall.Credential) {
	t.Helper()
	different := 0
	for _, session := range sessions {
		want, got := real.say(t, session, user), simulated.say(t, session, user)
		if want != got {
			if different++; different <= 10 {
				t.Errorf("session %.200q: %v\nsimgpu: %v", session, want, got)
			}
		}
	}
	t.Logf("%d sessions, %d differ", len(sessions), different)
}

// compareLogs tells where two logs begin to differ.
func compareLogs(t *testing.T, real, simulated []string) {
	t.Helper()
	for i := range max(len(real), len(simulated)) {
		if i >= len(real) || i >= len(simulated) || real[i] != simulated[i] {
			t.Errorf("the logs differ from line %d on: %q\nsimgpu's: %q", i, real[i:min(i+3, len(real))], simulated[i:min(i+3, len(simulated))])
			return
		}
	}
}
