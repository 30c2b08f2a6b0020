package drivers

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// idleServer is a server that lives and never says that it is ready: what daemons answer then needs no GPU.
const idleServer = "#!/bin/sh\nexec sleep 600\n"

// Sessions about a server that is not ready, whose process SERVER stands for, or that has ended. The first starts it.
var (
	idleSessions = []string{
		"start_server -uid 0", "get_server_list", "start_server -uid 0", "get_server_list",
		"get_server_status SERVER", "get_client_list SERVER", "get_device_client_list", "get_device_client_list SERVER",
		"get_active_thread_percentage SERVER", "set_active_thread_percentage SERVER 30", "get_device_pinned_mem_limit SERVER 0",
		"set_device_pinned_mem_limit SERVER 0 1G", "ps", "ps -p SERVER", "ps -pSERVER", "terminate_client SERVER 1",
		"start_server -uid 1000", "get_server_list", "shutdown_server SERVER", "get_server_list",
	}
	endedSessions = []string{
		"get_server_status SERVER", "get_client_list SERVER", "ps -p SERVER", "shutdown_server SERVER",
	}
	strangerSessions = []string{
		"start_server -uid 0", "start_server -uid 1000", "get_server_list", "get_client_list SERVER", "ps",
		"set_active_thread_percentage SERVER 30", "terminate_client SERVER 1",
	}
)

var digits = regexp.MustCompile(`^[0-9]+$`)

// server is the process of the only server.
func (c control) server(t *testing.T) string {
	t.Helper()
	pid := strings.TrimSpace(c.say(t, "get_server_list\n", nil).out)
	if !digits.MatchString(pid) {
		t.Fatalf("the daemon lists %q, want one server", pid)
	}
	return pid
}

// compareOfServer has both answer the same sessions about their servers.
func compareOfServer(t *testing.T, real, simulated control, servers [2]string, sessions []string, user *syscall.Credential) {
	t.Helper()
	for _, session := range sessions {
		var answers [2]answer
		for i, c := range []control{real, simulated} {
			a := c.say(t, strings.ReplaceAll(session, "SERVER", servers[i])+"\n", user)
			if servers[i] != "" {
				a.out = strings.ReplaceAll(a.out, servers[i], "SERVER")
			}
			answers[i] = a
		}
		if answers[0] != answers[1] {
			t.Errorf("session %q: %v\nsimgpu: %v", session, answers[0], answers[1])
		}
	}
}

// another waits until the only server is not that one, and runs: of a process that is not yet the server's program the daemon
// answers otherwise.
func (c control) another(t *testing.T, server string) string {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		pid := strings.TrimSpace(c.say(t, "get_server_list\n", nil).out)
		if digits.MatchString(pid) && pid != server {
			if line, err := os.ReadFile("/proc/" + pid + "/cmdline"); err == nil && strings.HasPrefix(string(line), "sleep\x00") {
				return pid
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("server %s has no successor", server)
	return ""
}

// without waits until a server has ended.
func (c control) without(t *testing.T, server string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if !strings.Contains(c.say(t, "get_server_list\n", nil).out, server) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("server %s does not end", server)
}

// serverLog is the log without what depends on chance: the order in which daemon and server write to it.
func (c control) serverLog(t *testing.T, servers ...string) []string {
	t.Helper()
	lines := slices.DeleteFunc(c.log(t), func(line string) bool { return line == "Cmd:get_server_list" || digits.MatchString(line) })
	for i, line := range lines {
		for _, server := range servers {
			line = strings.ReplaceAll(line, server, "SERVER")
		}
		lines[i] = line
	}
	slices.Sort(lines)
	return lines
}

func TestSimulatedControlHasServersAsTheDriver(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("servers of several users need root")
	}
	for _, d := range controlled(t) {
		t.Run(d.Version, func(t *testing.T) {
			real, simulated := controls(t, d, idleServer)
			compareOfServer(t, real, simulated, [2]string{}, idleSessions[:1], nil)
			first := [2]string{real.server(t), simulated.server(t)}
			compareOfServer(t, real, simulated, first, idleSessions[1:], nil)
			compareOfServer(t, real, simulated, first, strangerSessions, &syscall.Credential{Uid: stranger, Gid: stranger})
			compareOfServer(t, real, simulated, first, []string{"shutdown_server SERVER -f"}, nil)
			second := [2]string{real.another(t, first[0]), simulated.another(t, first[1])}
			compareOfServer(t, real, simulated, first, endedSessions, nil)
			for i, c := range []control{real, simulated} {
				// NVIDIA's answers with status 0 or 1 about a successor, by chance (seen with 550.163.01 and 555.58.02).
				c.say(t, "shutdown_server "+second[i]+" -f\n", nil)
				c.without(t, second[i])
			}
			compareLogs(t, real.serverLog(t, first[0], second[0]), simulated.serverLog(t, first[1], second[1]))
		})
	}
}
