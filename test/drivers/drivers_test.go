package drivers

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/backend/slice"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// fewest is how many versions of the driver must be there.
const fewest = 2

// installed are the folders of the versions that are unpacked.
func installed(t *testing.T) []string {
	t.Helper()
	if !slices.Contains(strings.Split(os.Getenv("DIVVY_REQUIRE"), ","), "drivers") {
		t.Skip("it downloads NVIDIA's drivers and takes a minute: run make test-drivers")
	}
	complete, err := filepath.Glob("../../.cache/drivers/*/.complete")
	must(t, err)
	if len(complete) < fewest {
		t.Fatalf("%d versions of NVIDIA's driver are there, want %d", len(complete), fewest)
	}
	var folders []string
	for _, mark := range complete {
		folder, err := filepath.Abs(filepath.Dir(mark))
		must(t, err)
		folders = append(folders, folder)
	}
	return folders
}

// version is one driver, and our libraries in front of it.
type version struct {
	asker string
	// native and share are folders in which the libraries have their usual names.
	native, share string
}

// open makes a share of a GPU that does not exist, over the libraries of a folder.
func open(t *testing.T, folder string) *version {
	t.Helper()
	v := &version{asker: filepath.Join(t.TempDir(), "ask"), native: t.TempDir(), share: t.TempDir()}
	if said, err := exec.Command("cc", "-O1", "-o", v.asker, "ask/ask.c", "-ldl").CombinedOutput(); err != nil {
		t.Fatalf("cc: %v: %s", err, said)
	}
	config, err := tenantdir.Encode(backend.Tenant{ID: "test", Name: "test", Layer: backend.LayerEnv, Shares: []backend.Share{{
		GPU:   backend.GPU{UUID: "GPU-6e5f0d1c-3b5e-4a8e-9f7a-2d1c0b9a8f7e", PCI: "00000000:01:00.0", Total: 80 << 30, ContextBytes: 400 << 20},
		Limit: 2 << 30, Weight: 1, Policy: v1alpha1.PolicyWeighted, Class: v1alpha1.ClassOffline,
	}}}, 0)
	must(t, err)
	must(t, tenantdir.Dir(v.share).Make(&config, nil, tenantdir.AccessOwner, -1))
	for _, library := range driver.Libraries {
		found, err := filepath.Glob(filepath.Join(folder, library.Bare()+".*"))
		must(t, err)
		if len(found) != 1 {
			t.Fatalf("%s in %s: %v", library, folder, found)
		}
		image, err := os.ReadFile(installtest.Tree(t).Library(string(library)))
		must(t, err)
		image, err = slice.ForDriver(image, v.share, found[0])
		must(t, err)
		must(t, errors.Join(
			os.WriteFile(filepath.Join(v.share, string(library)), image, 0o700),
			os.Symlink(found[0], filepath.Join(v.share, library.Real())),
			os.Symlink(found[0], filepath.Join(v.native, string(library)))))
	}
	return v
}

// documented are the names of the two interfaces; the debugger's own begin otherwise.
var documented = regexp.MustCompile("^(cu|nvml)[A-Z]")

// names are those of a library that either our description or this driver has.
func (v *version) names(t *testing.T, library driver.Library) string {
	t.Helper()
	names := map[string]bool{}
	for _, path := range []string{installtest.Tree(t).Library(string(library)), filepath.Join(v.native, string(library))} {
		some, err := driver.Names(path)
		must(t, err)
		for name := range some {
			names[name] = documented.MatchString(name)
		}
	}
	var list []string
	for name, ask := range names {
		if ask {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return strings.Join(list, "\n") + "\n"
}

// ask returns the answers of the driver alone, or of a share.
func (v *version) ask(t *testing.T, question string, library driver.Library, share bool) []string {
	t.Helper()
	folder, args := v.native, []string{question, filepath.Join(v.native, string(library))}
	if share {
		folder, args = v.share, []string{question, filepath.Join(v.share, string(library)), filepath.Join(v.share, library.Real())}
	}
	cmd := exec.Command(v.asker, args...)
	cmd.Stdin = strings.NewReader(v.names(t, library))
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+folder)
	var said bytes.Buffer
	cmd.Stderr = &said
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("ask for the %s of %s: %v: %s", question, library, err, said.String())
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// noStatus are functions that answer with a pointer.
var noStatus = map[string]bool{"nvmlErrorString": true}

// compare reports where two lists of answers differ.
func compare(t *testing.T, want, got []string, least int) {
	t.Helper()
	if len(want) < least || len(want) != len(got) {
		t.Fatalf("the driver gives %d answers, a share %d, want %d or more", len(want), len(got), least)
	}
	differ := 0
	for i := range want {
		name, _, _ := strings.Cut(want[i], " ")
		if want[i] == got[i] || strings.Contains(want[i], " signal ") || noStatus[name] {
			continue // what does not survive zeros natively may do as it likes
		}
		if differ++; differ <= 10 {
			t.Errorf("in a share %q, natively %q", got[i], want[i])
		}
	}
	t.Logf("%d answers, %d differ", len(want), differ)
}

// questions are what each library is asked, and how many answers at least show that it was.
var questions = []struct {
	library  driver.Library
	question string
	least    int
}{
	{driver.CUDA, "names", 700},
	{driver.CUDA, "lookups", 80_000},
	{driver.CUDA, "late", 80_000},
	{driver.CUDA, "errors", 2_000},
	{driver.CUDA, "status", 400},
	{driver.NVML, "names", 400},
	{driver.NVML, "errors", 1_000},
	{driver.NVML, "status", 250},
}

func TestSharesAnswerAsTheDriver(t *testing.T) {
	for _, folder := range installed(t) {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			v := open(t, folder)
			for _, q := range questions {
				t.Run(strings.TrimSuffix(q.library.Bare(), ".so")+"/"+q.question, func(t *testing.T) {
					compare(t, v.ask(t, q.question, q.library, false), v.ask(t, q.question, q.library, true), q.least)
				})
			}
		})
	}
}

// nvidia-smi of each version says in a share what it says natively: that there is no driver.
func TestMonitorSaysTheSame(t *testing.T) {
	for _, folder := range installed(t) {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			v := open(t, folder)
			say := func(libraries string) string {
				cmd := exec.Command(filepath.Join(folder, "nvidia-smi"))
				cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+libraries)
				text, err := cmd.CombinedOutput()
				var exit *exec.ExitError
				if err != nil && !errors.As(err, &exit) {
					t.Fatal(err)
				}
				return string(text)
			}
			native, share := say(v.native), say(v.share)
			if native != share || !strings.Contains(native, "NVIDIA driver") {
				t.Errorf("in a share:\n%s\nnatively:\n%s", share, native)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
