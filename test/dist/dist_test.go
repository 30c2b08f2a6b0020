package dist

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
)

// release is the folder that make dist wrote, as make test-dist names it.
func release(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("DIVVY_DIST")
	if dir == "" {
		t.Skip("DIVVY_DIST is not set: run make test-dist")
	}
	if err := missing(); err != nil {
		installtest.Missing(t, "systemd", err)
	}
	if found, _ := filepath.Glob(filepath.Join(dir, "divvy_*.deb")); len(found) != 1 {
		t.Fatalf("%s has the packages %v: run make dist", dir, found)
	}
	return dir
}

// everything lists the files of the machine's system, without what dpkg and systemd write about themselves. Programs of this
// machine may write elsewhere meanwhile.
const everything = `find /etc /usr /var /opt /srv /run /dev/shm /home -xdev \( -path /var/lib/dpkg -o -path /var/log -o -path /var/cache \
	-o -path /var/lib/systemd -o -path /run/systemd -o -path /run/log -o -path /run/dpkg \) -prune -o -print | LC_ALL=C sort -u`

// A package is installed on a machine without a GPU, serves root and six users on a simulated one, is replaced by a newer one
// under a running share, is not removed before the share ends, and leaves nothing.
func TestPackage(t *testing.T) {
	m := newMachine(t, release(t))
	before := m.ok("root", everything)

	said := m.ok("root", "dpkg -i /release/divvy_*.deb")
	if !strings.Contains(said, "`divvy doctor` says why") {
		t.Errorf("on a machine without a GPU the package says nothing about the agent:\n%s", said)
	}
	m.ok("root", "systemctl is-enabled divvy-agent")
	startedOften(t, m)
	m.ok("root", `sed -i 's/^DIVVY_AGENT_FLAGS=.*/DIVVY_AGENT_FLAGS="--simgpu a100-80g"/' /etc/default/divvy-agent`)
	m.ok("root", "systemctl start divvy-agent")
	// The unit is started when the agent serves: nobody waits.
	if status := m.ok("root", "systemctl show divvy-agent -p ActiveState -p StatusText"); !strings.Contains(status, "ActiveState=active\n") || !strings.Contains(status, "StatusText=serving 1 GPUs\n") {
		t.Errorf("the unit is not as an agent that serves tells: %s", status)
	}
	served(t, m)
	servedFar(t, m)

	first := m.ok("root", "systemctl show divvy-agent -p MainPID")
	end := hold(t, m, "ada", "train")
	upgrade(t, m, "9.9.9")
	if second := m.ok("root", "systemctl show divvy-agent -p MainPID"); second == first {
		t.Errorf("the agent of the package before still runs: %s", second)
	}
	if flags := m.ok("root", "cat /etc/default/divvy-agent"); !strings.Contains(flags, `"--simgpu a100-80g"`) {
		t.Errorf("the administrator's flags are gone:\n%s", flags)
	}
	if list := m.ok("ben", "divvy ls"); !strings.Contains(list, "train") {
		t.Errorf("the share of ada is lost:\n%s", list)
	}
	m.ok("ben", "divvy run --memory 1Gi -- true")

	said = m.fails("root", "dpkg --remove divvy")
	if !strings.Contains(said, "divvy: 1 share runs (ada/train): end them with `divvy stop ada/train`") {
		t.Errorf("the package is not removed while a share runs, and does not say how to go on:\n%s", said)
	}
	m.ok("root", "systemctl is-active divvy-agent")
	// What an agent that is away has granted counts too.
	m.ok("root", "systemctl stop divvy-agent")
	m.fails("root", "dpkg --remove divvy")
	m.ok("root", "systemctl start divvy-agent")
	end()
	m.noShares()

	m.ok("root", "dpkg --remove divvy")
	m.fails("root", "systemctl is-active divvy-agent")
	m.ok("root", "test -e /etc/divvy/agent.yaml && ! test -e /usr/bin/divvy && ! test -e /run/divvy")
	m.ok("root", "dpkg --purge divvy")
	if changed := difference(before, m.ok("root", everything)); changed != "" {
		t.Errorf("purged, the package leaves (+1) or takes (-1):\n%s", changed)
	}
}

// startedOften starts the agent in vain, oftener than systemd's own limits and those of most units allow. What an administrator
// must mend is not tried again by itself.
func startedOften(t *testing.T, m *machine) {
	t.Helper()
	m.fails("root", "for try in $(seq 40); do systemctl start divvy-agent && exit; done; exit 1")
	const state = "systemctl show divvy-agent -p ActiveState -p SubState -p Result -p ExecMainStatus"
	if got, want := m.ok("root", state), "Result=exit-code\nExecMainStatus=69\nActiveState=failed\nSubState=failed\n"; got != want {
		t.Errorf("without a driver the unit is\n%s, want\n%s", got, want)
	}
	m.ok("root", "cp /etc/divvy/agent.yaml agent.yaml && echo 'outside: nothing' >>/etc/divvy/agent.yaml")
	m.fails("root", "systemctl restart divvy-agent")
	if got, want := m.ok("root", state), "Result=exit-code\nExecMainStatus=78\nActiveState=failed\nSubState=failed\n"; got != want {
		t.Errorf("with a faulty configuration the unit is\n%s, want\n%s", got, want)
	}
	m.ok("root", "cat agent.yaml >/etc/divvy/agent.yaml && rm agent.yaml")
}

// served checks that root and six users have shares and what comes with the program.
func served(t *testing.T, m *machine) {
	t.Helper()
	for _, user := range append([]string{"root"}, users...) {
		m.ok(user, "divvy run --memory 1Gi -- gpubench alloc --bytes 64Mi")
		if refused := m.fails(user, "divvy run --memory 1Gi -- gpubench alloc --bytes 2Gi"); !strings.Contains(refused, "OUT_OF_MEMORY") {
			t.Errorf("%s is not refused what exceeds the share:\n%s", user, refused)
		}
		m.ok(user, "divvy run --memory 1Gi -- /usr/lib/simgpu/nvidia-smi -L")
		m.ok(user, "divvy ls && divvy doctor >/dev/null && kubectl-divvy version")
	}
	if refused := m.fails("ada", "divvy run --memory 900Gi -- true"); strings.Count(refused, "\n") > 6 {
		t.Errorf("the refusal is longer than a few lines:\n%s", refused)
	}
	m.ok("root", "for page in /usr/share/man/man1/divvy*.gz; do zcat $page | grep -q '^.SH SYNOPSIS' || exit; done")
	m.ok("root", "bash -n /usr/share/bash-completion/completions/divvy")
}

// hold starts a share that goes on until end is called.
func hold(t *testing.T, m *machine, user, name string) (end func()) {
	t.Helper()
	cmd := m.command(user, fmt.Sprintf("divvy run --memory 1Gi --name %s -- sh -c 'echo held; read line'", name))
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = func() {
		_ = input.Close()
		_ = cmd.Wait() // read fails at the end of its input
	}
	t.Cleanup(end)
	if line, err := bufio.NewReader(output).ReadString('\n'); line != "held\n" {
		t.Fatalf("the share of %s did not start: %q, %v", user, line, err)
	}
	return end
}

// upgrade installs the same package as another version.
func upgrade(t *testing.T, m *machine, version string) {
	t.Helper()
	m.ok("root", `set -e
cd /tmp
dpkg-deb -R /release/divvy_*.deb newer
sed -i 's/^Version: .*/Version: `+version+`/' newer/DEBIAN/control
dpkg-deb -Zgzip -z1 -b newer newer.deb >/dev/null
rm -r newer`)
	m.ok("root", "dpkg -i /tmp/newer.deb")
	if got := m.ok("root", "dpkg-query -W -f '${Version}' divvy"); got != version {
		t.Errorf("version %q is installed, want %s", got, version)
	}
	m.ok("root", "rm /tmp/newer.deb")
}

// difference lists the lines that only one of two lists has.
func difference(before, after string) string {
	seen := map[string]int{}
	for line := range strings.SplitSeq(before, "\n") {
		seen[line]--
	}
	for line := range strings.SplitSeq(after, "\n") {
		seen[line]++
	}
	var b strings.Builder
	for _, line := range slices.Sorted(maps.Keys(seen)) {
		if seen[line] != 0 {
			fmt.Fprintf(&b, "%+d %s\n", seen[line], line)
		}
	}
	return b.String()
}

var sum = regexp.MustCompile(`(?m)^[0-9a-f]{64}  (\S+)$`)

// The sums are those of all files of the release.
func TestSums(t *testing.T) {
	dir := release(t)
	text, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	var named []string
	for _, match := range sum.FindAllStringSubmatch(string(text), -1) {
		named = append(named, match[1])
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(named) < 5 || len(named) != len(entries)-1 {
		t.Errorf("SHA256SUMS names %v of %v", named, entries)
	}
}

// servedFar has root's server serve a client, whose share is that of the local user whom the file names. It is off until it is
// enabled or started.
func servedFar(t *testing.T, m *machine) {
	t.Helper()
	m.fails("root", "systemctl is-enabled divvy-serve")
	m.fails("root", "systemctl is-active divvy-serve")
	m.ok("root", "divvy serve init localhost && divvy serve admit laptop --user ada --memory 4Gi --out /root/laptop.pem")
	m.ok("root", "install -D -o ben -m 600 /root/laptop.pem /home/ben/.config/divvy/remote/laptop.pem")
	m.ok("root", "systemctl start divvy-serve")
	if status := m.ok("root", "systemctl show divvy-serve -p ActiveState -p StatusText"); !strings.Contains(status, "ActiveState=active\n") || !strings.Contains(status, "StatusText=serving 1 GPUs") {
		t.Errorf("the unit is not as a server that serves tells: %s", status)
	}
	said := m.ok("ben", "divvy run --remote localhost --memory 2Gi --name far -- sh -c 'gpubench alloc --bytes 1Gi --count 3; divvy ls'")
	if !strings.Contains(said, `"total_bytes":2147483648`) || !strings.Contains(said, "CUDA_ERROR_OUT_OF_MEMORY") {
		t.Errorf("ben's program says\n%s", said)
	}
	if said := m.ok("root", "divvy run --remote localhost --memory 1Gi -- true 2>&1 || true"); !strings.Contains(said, "localhost") {
		t.Errorf("root has no bundle, and hears\n%s", said)
	}
	if said := m.fails("ben", "divvy run --remote localhost --memory 5Gi -- true"); !strings.Contains(said, "4Gi") {
		t.Errorf("beyond what the client may have ben hears\n%s", said)
	}
	list := m.ok("ben", "divvy run --remote localhost --memory 1Gi --name far -- sh -c 'sleep 1000 & echo $!' >/tmp/far 2>&1; divvy ls -o json --simgpu a100-80g; kill $(cat /tmp/far); rm /tmp/far")
	if !strings.Contains(list, `"client": "laptop"`) || !strings.Contains(list, `"user": "ada"`) {
		t.Errorf("lists say\n%s", list)
	}
	m.ok("root", "systemctl stop divvy-serve && rm -rf /etc/divvy/serve /root/laptop.pem /home/ben/.config")
	m.noShares()
}

// noShares waits until the agent knows that all shares have ended.
func (m *machine) noShares() {
	m.t.Helper()
	m.wait("the last share to end", func() bool { return strings.Contains(m.ok("ben", "divvy ls"), "No shares.") })
}
