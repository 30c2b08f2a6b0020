package claims

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/test/vm/guest"
	"github.com/divvy-gpu/divvy/test/vm/machine"
)

// echo is a line that the doctor prints: what is written, the node that is held meanwhile, and the file of sysfs.
var echo = regexp.MustCompile(`^\(?echo ?([^ <>]*)(?: 3<(\S+))? >(/sys/\S+?)(?: \|\| true\))?(?: &&)?$`)

// giveBack is a line that gives a node back which is still that user's, with the mode that it gets where no program takes access lists
// away, as in the guest.
var giveBack = regexp.MustCompile(`^if \[ "\$\(stat -c %u (\S+) 2>/dev/null\)" = \d+ \]; then chown (\d+):(\d+) \S+ && if setfacl -b \S+ 2>/dev/null; then .*; else chmod ([0-7]+|g=) \S+; fi; fi(?: &&)?$`)

// emptied is the line after which the book has nothing any more: its file and folder go, and the file is written anew.
var emptied = regexp.MustCompile(`^rm -rf (\S+) (\S+) && echo '([^']*)' >(\S+)$`)

// advised is what the doctor says of devices of virtual machines, by id.
func advised(t *testing.T) map[string][]string {
	t.Helper()
	out, _ := divvy("doctor", "-o", "json") // the guest has no driver, which the status tells
	var report struct {
		Checks []struct {
			ID       string
			Commands []string
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	all := map[string][]string{}
	for _, c := range report.Checks {
		if strings.HasPrefix(c.ID, "vm.") {
			all[c.ID] = c.Commands
		}
	}
	return all
}

// obey does what a shell would, which the guest has not. Of conditions, those that only look are passed over.
func obey(t *testing.T, lines []string) {
	t.Helper()
	for _, line := range lines {
		parts := echo.FindStringSubmatch(line)
		switch {
		case parts == nil && emptied.MatchString(line):
			book := emptied.FindStringSubmatch(line)
			if err := errors.Join(os.RemoveAll(book[1]), os.RemoveAll(book[2]), os.WriteFile(book[4], []byte(book[3]+"\n"), 0o600)); err != nil {
				t.Fatal(err)
			}
		case parts == nil && giveBack.MatchString(line):
			returnNode(t, giveBack.FindStringSubmatch(line))
		case parts == nil && strings.HasPrefix(line, "! "):
		case parts == nil:
			t.Fatalf("what is %q?", line)
		default:
			write(t, parts[1], parts[2], parts[3])
		}
	}
}

// returnNode does what a line says that giveBack matches. The node of a device that has left is gone.
func returnNode(t *testing.T, parts []string) {
	t.Helper()
	uid, err := strconv.Atoi(parts[2])
	gid, other := strconv.Atoi(parts[3])
	if err := errors.Join(err, other); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(parts[1], uid, gid); errors.Is(err, fs.ErrNotExist) {
		return
	} else if err != nil {
		t.Fatal(err)
	}
	mode, err := strconv.ParseUint(parts[4], 8, 32)
	if parts[4] == "g=" {
		var info fs.FileInfo
		if info, err = os.Stat(parts[1]); err == nil {
			mode = uint64(info.Mode().Perm() &^ 0o070)
		}
	}
	if err == nil {
		err = os.Chmod(parts[1], fs.FileMode(mode))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, value, node, file string) {
	t.Helper()
	if node != "" {
		held, err := os.Open(node) //nolint:gosec // a node of the guest
		if err != nil {
			t.Fatal(err)
		}
		defer held.Close()
	}
	if err := guest.Write(file, value+"\n"); err != nil && filepath.Base(file) != "reset" {
		t.Fatalf("write %q to %s: %v", value, file, err)
	}
}

// An agent ends for good while a claim has a GPU whose override is its driver's name, and a card has functions, one of which is claimed. The
// doctor's commands put all of it back as it was.
func TestByHand(t *testing.T) {
	guest.Require(t)
	gpu, card := guest.Function(machine.Accelerator), guest.Function(machine.RootedCard)
	gpu.Bind(t, "nvidia")
	if err := gpu.Write("driver_override", "nvidia\n"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = gpu.Write("driver_override", "\n")
		_, _ = card.Write("sriov_numvfs", "0"), card.Write("sriov_drivers_autoprobe", "1") // where the test failed before
	})
	before := drivers(append(gpu.Members(), card)) + functions(card)
	for book, damage := range map[string]func(name string) error{
		"vm.left": func(string) error { return nil },
		"vm.book": func(name string) error { return os.WriteFile(name, []byte("nonsense"), 0o600) },
	} {
		t.Run(book, func(t *testing.T) {
			first := agent(t)
			out, err := settled("vm", "functions", string(card), "--count", "2", "-o", "json")
			if err != nil {
				t.Fatal(err)
			}
			var e enabled
			if err := json.Unmarshal([]byte(out), &e); err != nil || len(e.Virtual) != 2 {
				t.Fatalf("%v in %s", err, out)
			}
			claims := map[string][]string{"part": {"--pci", e.Virtual[0].Device, "--form", "vf"}}
			if book == "vm.left" { // of a damaged book an override is lost
				claims["whole"] = []string{"--pci", string(gpu), "--form", "passthrough"}
			}
			for name, arguments := range claims {
				if _, err := settled(append([]string{"vm", "claim", name}, arguments...)...); err != nil {
					t.Fatal(err)
				}
			}
			killed(t, first)
			if err := damage("/run/divvy/vfio.json"); err != nil {
				t.Fatal(err)
			}
			lines := advised(t)[book]
			obey(t, lines)
			if after := drivers(append(gpu.Members(), card)) + functions(card); after != before {
				t.Errorf("%q left\n%s, want\n%s", lines, after, before)
			}
			agent(t)
			for name := range claims {
				listed(t, name)
				if _, err := settled("vm", "release", name); err != nil {
					t.Error(err)
				}
			}
			listed(t, nothing)
			if list, err := divvy("vm", "ls"); err != nil || strings.Contains(list, "FUNCTIONS OF") {
				t.Errorf("the list is: %v\n%s", err, list)
			}
			if said := advised(t); len(said) > 0 {
				t.Errorf("afterwards the doctor says %v", said)
			}
		})
	}
}
