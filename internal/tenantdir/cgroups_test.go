package tenantdir

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Processes in a container's cgroup and below it are the container's, and no others.
func TestOwnerByCgroup(t *testing.T) {
	place := t.TempDir()
	for id, lines := range map[string]string{
		"one":     "memory:/pods/aa\n:/pods/aa\nmemory:/shared\n",
		"two":     ":/kube.slice/cri-bb.scope\nmemory:/shared\nmemory:/pods/aa/inner\n",
		"strange": "\n:\nmemory\n:/\n:/../out\n:relative\nmemory:/pods/../up\n",
		"empty":   "",
	} {
		dir := Of(place, id)
		if err := os.Mkdir(string(dir), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir.Cgroups(), []byte(lines), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(place, "without"), 0o755); err != nil {
		t.Fatal(err)
	}
	known := recorded(place)
	for table, want := range map[string]string{
		"":                                      "",
		"nonsense\n1:memory\n::\n":              "",
		"0::/\n":                                "",
		"0::/pods/aa\n":                         "one",
		"0::/pods/aa/deeper/down\n":             "one",
		"0::/pods/aab\n":                        "",
		"0::/pods\n":                            "",
		"9:cpu:/\n8:memory:/pods/aa\n0::/\n":    "one",
		"8:cpu:/pods/aa\n":                      "", // of another hierarchy
		"8:memory:/pods/aa/inner/x\n":           "two",
		"0::/kube.slice/cri-bb.scope\n":         "two",
		"0::/user.slice/cri-bb.scope\n":         "",
		"8:memory:/shared\n":                    "", // of two
		"0::/out\n1:memory:/up\n0::/relative\n": "",
		"0::/../pods/aa\n":                      "",
		"0::/pods/aa (deleted)\n":               "",
	} {
		if got := ownerOf(known, []byte(table)); got != want {
			t.Errorf("%q is of %q, want %q", table, got, want)
		}
	}
	if known := recorded(filepath.Join(place, "nowhere")); len(known) != 0 {
		t.Errorf("without a directory: %v", known)
	}
}

// Of very many containers the latest are known, each by a whole line.
func TestManyContainersOfOneTenant(t *testing.T) {
	place := t.TempDir()
	dir := Of(place, "one")
	if err := os.Mkdir(string(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	const last = ":/pods/last\n"
	text := strings.Repeat(":/pods/"+strings.Repeat("a", 100)+"\n", mostCgroups/100) + last
	if err := os.WriteFile(dir.Cgroups(), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if known := recorded(place); len(known) != 2 || known[":/pods/last"] != "one" {
		t.Errorf("%v", known)
	}
}

// The agent's own process is in no container's cgroup; one that is gone is in none.
func TestOwnerOfAProcess(t *testing.T) {
	place := t.TempDir()
	var c cgroups
	for _, pid := range []int{os.Getpid(), 1 << 30} {
		if got := c.owner(place, pid); got != "" {
			t.Errorf("process %d is of %q", pid, got)
		}
	}
}
