package dist

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/test/docs/session"
)

// Every command of the page on a lab's server prints what the page says, from the package alone: those of everybody as root and
// as six users.
func TestPageOfTheLab(t *testing.T) {
	m := newMachine(t, release(t))
	m.ok("root", "ln -s /release/divvy_*.deb .")
	m.follow("docs/lab.md", "test/dist.TestPageOfTheLab", 60)
}

// So does every command of the part on a server of the page on day two.
func TestPageOfDayTwo(t *testing.T) {
	m := newMachine(t, release(t))
	m.ok("root", "dpkg -i /release/divvy_*.deb")
	m.ok("root", `echo 'DIVVY_AGENT_FLAGS="--simgpu a800x8"' >/etc/default/divvy-agent && systemctl restart divvy-agent`)
	m.follow("docs/day-two.md", "test/dist.TestPageOfDayTwo", 20)
}

// So does every command of the page on the installation.
func TestPageOfInstalling(t *testing.T) {
	m := newMachine(t, release(t))
	m.ok("root", "ln -s /release/divvy_*.deb /release/divvy-*-linux-amd64.tar.gz .")
	m.follow("docs/install.md", "test/dist.TestPageOfInstalling", 10)
}

// So do those that users of one machine give to the agent that root starts, on the pages on the simulator and on the web page.
func TestPagesOfTheAgent(t *testing.T) {
	m := newMachine(t, release(t))
	m.ok("root", "dpkg -i /release/divvy_*.deb")
	m.follow("docs/simgpu.md", "test/dist.TestPagesOfTheAgent", 4)
	m.follow("docs/web.md", "test/dist.TestPagesOfTheAgent", 14)
}

// follow runs the commands of a page that are a test's, of which there are at least some.
func (m *machine) follow(page, test string, least int) {
	m.t.Helper()
	all, book, err := session.Page(installtest.Root(m.t), page, test)
	if err != nil {
		m.t.Fatal(err)
	}
	ran := 0
	for _, c := range all {
		who := []string{c.User}
		if c.User == "" {
			who = append([]string{"root"}, users...) // it is one of anybody's
		}
		for _, user := range who {
			m.shows(user, c, book)
			ran++
		}
		if strings.HasPrefix(c.Text, "divvy agent ") && strings.HasSuffix(c.Text, "&") { // others only check
			m.wait("the agent to serve", func() bool { return m.command("root", "divvy ls -o json | grep -q protocol").Run() == nil })
		}
	}
	if ran < least {
		m.t.Errorf("%d commands were run", ran)
	}
}

// shows runs a command, and compares what it prints. One that may be repeated is, until what came before has had its effect.
func (m *machine) shows(user string, c session.Command, book *session.Book) {
	m.t.Helper()
	out, ended := m.run(user, c.Text)
	for last := time.Now().Add(2 * time.Minute); !book.Prints(c, out) && book.Repeats(c) && time.Now().Before(last); {
		out, ended = m.run(user, c.Text)
	}
	if !book.Prints(c, out) {
		m.t.Errorf("%v: as %s it prints\n%s(%s), and the page has\n%s", c, user, out, ended, c.Output)
	}
}

// run runs a command, whose processes in the background go on, and returns what it printed and how it ended.
func (m *machine) run(user, command string) (output, ended string) {
	m.t.Helper()
	said, err := os.CreateTemp(m.t.TempDir(), "")
	if err != nil {
		m.t.Fatal(err)
	}
	cmd := m.command(user, command)
	cmd.Stdout, cmd.Stderr = said, said
	err = cmd.Run()
	var status *exec.ExitError
	if errors.As(err, &status) {
		err = nil // the page may show what fails
	}
	text, unread := os.ReadFile(said.Name())
	if err := errors.Join(err, unread, said.Close()); err != nil {
		m.t.Fatalf("%s: %s: %v", user, command, err)
	}
	return string(text), cmd.ProcessState.String()
}
