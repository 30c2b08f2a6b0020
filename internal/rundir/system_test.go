package rundir

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/process"
)

// The mark outlives its agent, tells when it was last renewed, and goes when it is
// removed. Whatever is in the file, that it is there counts.
func TestMark(t *testing.T) {
	dir := t.TempDir()
	if c, ok := ConfiguredSystem(dir); ok || c.Mark != nil {
		t.Errorf("nothing is configured: %+v", c)
	}
	want := Mark{Agent: process.ID{PID: 12, Start: 34}, Tenants: "/t"}
	for range 2 {
		if err := WriteMark(dir, want); err != nil {
			t.Fatal(err)
		}
	}
	at := time.Now().Add(-time.Hour).Truncate(time.Second)
	if err := RenewMark(dir, at); err != nil {
		t.Fatal(err)
	}
	c, ok := ConfiguredSystem(dir)
	if !ok || c.By != filepath.Join(dir, markFile) || c.Mark.Agent != want.Agent || c.Mark.Tenants != "/t" || !c.Mark.Seen.Equal(at) {
		t.Errorf("%+v %+v", c, c.Mark)
	}
	if err := os.WriteFile(c.By, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, ok := ConfiguredSystem(dir); !ok || c.Mark == nil || c.Mark.Tenants != "" {
		t.Errorf("a damaged mark: %+v", c)
	}
	for range 2 {
		if err := RemoveMark(dir); err != nil {
			t.Error(err)
		}
	}
	if _, ok := ConfiguredSystem(dir); ok {
		t.Error("it was removed")
	}
}

// A configuration or an enabled unit of this machine counts without a mark.
func TestConfigurationOfTheMachine(t *testing.T) {
	dir := t.TempDir()
	before, beforeUnits := configFile, units
	defer func() { configFile, units = before, beforeUnits }()
	configFile, units = filepath.Join(dir, "agent.yaml"), filepath.Join(dir, "*.wants", "divvy-agent.service")
	if c, ok := ConfiguredSystem(System); ok && c.Mark == nil {
		t.Errorf("nothing is configured: %+v", c)
	}
	wants := filepath.Join(dir, "multi-user.target.wants")
	if err := os.Mkdir(wants, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(wants, "divvy-agent.service"), configFile} {
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if c, ok := ConfiguredSystem(System); !ok || c.By != path {
			t.Errorf("%+v, want %s", c, path)
		}
		if _, ok := ConfiguredSystem(dir); ok {
			t.Error("another run directory has a configuration of its own")
		}
	}
}

// Who installed a unit starts the agent by it, where systemd runs.
func TestStart(t *testing.T) {
	dir := t.TempDir()
	beforeFolders, beforeSystemd := unitFolders, systemd
	defer func() { unitFolders, systemd = beforeFolders, beforeSystemd }()
	unitFolders, systemd = []string{filepath.Join(dir, "none"), dir}, filepath.Join(dir, "running")
	for _, c := range []struct{ file, machine, root, others string }{
		{"divvy-agent.service", "t4", "`divvy agent --simgpu t4`", "`divvy agent` as root"},
		{"running", "t4", "`systemctl restart divvy-agent` with `DIVVY_AGENT_FLAGS=\"--simgpu t4\"` in /etc/default/divvy-agent", "`systemctl start divvy-agent`"},
		{"running", "", "`systemctl start divvy-agent`", "`systemctl start divvy-agent`"},
	} {
		if err := os.WriteFile(filepath.Join(dir, c.file), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if got := Start(c.machine); got != c.root {
			t.Errorf("with %s root runs %s, want %s", c.file, got, c.root)
		}
		if got := AsRoot(); got != c.others {
			t.Errorf("with %s others are told %s, want %s", c.file, got, c.others)
		}
	}
	if c, _ := ConfiguredSystem(System); !c.Unit {
		t.Error("systemd starts the system agent")
	}
	if c, _ := ConfiguredSystem(dir); c.Unit {
		t.Error("no unit starts the agent of another run directory")
	}
}

// What an earlier program made with a narrower mode is opened; what is not ours is not.
func TestMakeMends(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "divvy")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Make(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if os.Getuid() != 0 {
		return
	}
	if err := os.Chown(dir, 4321, -1); err != nil {
		t.Fatal(err)
	}
	if err := Make(dir, 0o755); err == nil {
		t.Error("another user's directory is taken")
	}
}

func TestOthersAreNamedByNumber(t *testing.T) {
	for uid, dir := range Others() {
		if of(uid) != dir {
			t.Errorf("%s is said to be of user %d", dir, uid)
		}
	}
}
