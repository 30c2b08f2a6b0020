package nvml

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// One library can be open in a process, so each is looked at in one of its own.
const libraryVariable = "NVML_TEST_LIBRARY"

// answers is what a process found.
type answers struct {
	Version   Version
	GPUs      []GPU
	Used      uint64
	Processes []Process
	// Busy are the parts of the time by pid, at the given distance in us from
	// the moment asked for; Untold that it is not told.
	Busy   map[int]float64
	At     map[int]int64
	Untold bool
	Error  string
	Driver bool // the error wraps ErrDriver
	// Health is what each GPU's condition was, twice, and once more after the library was opened anew.
	Health        []string
	Architectures []string
	// Readings are those of the two GPUs, Unread their errors.
	Readings []Reading
	Unread   []string
}

func TestMain(m *testing.M) {
	path := os.Getenv(libraryVariable)
	if path == "" {
		os.Exit(m.Run())
	}
	if err := json.NewEncoder(os.Stdout).Encode(ask(path)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func ask(path string) (a answers) {
	fail := func(err error) answers {
		a.Error, a.Driver = err.Error(), errors.Is(err, ErrDriver)
		return a
	}
	l, err := Open(path)
	if err != nil {
		return fail(err)
	}
	a.Version = l.Version()
	if a.GPUs, err = l.GPUs(); err != nil {
		return fail(err)
	}
	if a.Used, err = l.Used(1); err != nil {
		return fail(err)
	}
	if a.Processes, err = l.Processes(0); err != nil {
		return fail(err)
	}
	since := time.UnixMicro(1_000_000)
	samples, err := l.Utilisation(0, since)
	a.Untold = errors.Is(err, ErrNotSupported)
	if err != nil && !a.Untold {
		return fail(err)
	}
	for _, s := range samples {
		if a.Busy == nil {
			a.Busy, a.At = map[int]float64{}, map[int]int64{}
		}
		a.Busy[s.PID], a.At[s.PID] = s.Busy, s.At.Sub(since).Microseconds()
	}
	a.Architectures = []string{l.Architecture(0), l.Architecture(1)}
	a.Health = health(l)
	for index := range 2 {
		r, err := l.Reading(index)
		a.Readings, a.Unread = append(a.Readings, r), append(a.Unread, fmt.Sprint(err))
	}
	if _, err := l.Processes(7); err == nil {
		return fail(errors.New("GPU 7 has processes"))
	}
	if err := l.Close(); err != nil {
		return fail(err)
	}
	return a
}

func health(l *Library) (told []string) {
	tell := func() {
		for index := range 2 {
			condition, err := l.Condition(index)
			told = append(told, conditionText(condition, err))
		}
	}
	tell()
	tell()
	if err := l.Reopen(); err != nil {
		return append(told, err.Error())
	}
	for index := range 2 {
		_, _ = l.Identify(index) // which changes nobody's index, whatever the driver's are now
	}
	tell()
	_, err := l.Condition(7)
	return append(told, conditionText(Condition{}, err))
}

func conditionText(c Condition, err error) string {
	text := fmt.Sprintf("%v %d %v %v %v %s", c.XIDs, c.Uncorrected, c.RemapFailed, c.RemapPending, c.RetirementPending, c.Recovery)
	if c.MIG {
		text += "mig"
	}
	for name, known := range map[string]error{"lost": ErrLost, "vanished": ErrVanished, "reset": ErrReset} {
		if errors.Is(err, known) {
			return text + name
		}
	}
	if err != nil {
		return text + err.Error()
	}
	return text
}

// asked builds the double with these macros and asks it in another process.
func asked(t *testing.T, macros ...string) answers {
	t.Helper()
	path := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	args := []string{"-shared", "-fPIC", "-fvisibility=hidden", "-o", path, "testdata/double.c"}
	for _, macro := range macros {
		args = append(args, "-D"+macro)
	}
	if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	return askedAt(t, path)
}

func askedAt(t *testing.T, path string) (a answers) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), libraryVariable+"="+path)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the process ended: %v", err)
	}
	if err := json.Unmarshal(out, &a); err != nil {
		t.Fatal(err)
	}
	return a
}

func TestWholeDriver(t *testing.T) {
	want := answers{
		Version: Version{Driver: "550.1", CUDA: 12040},
		GPUs: []GPU{
			{Index: 0, UUID: "GPU-0", Name: "Double 0", PCI: "00000000:3B:00.0", Total: 1000, Reserved: 100},
			{Index: 1, UUID: "GPU-1", Name: "Double 1", PCI: "00000000:3C:00.0", Total: 1000, Reserved: 100},
		},
		Used:      300,
		Processes: []Process{{PID: 11, Used: 5000, Instances: []int{0}}, {PID: 12, Hidden: true, Instances: []int{0}}, {PID: 13, Used: 7, Instances: []int{0}}},
		Busy:      map[int]float64{11: 0.4, 12: 1}, At: map[int]int64{11: 5, 12: 6},
		Health: []string{
			"[31 79] 0 false false false ", broken, well, broken, well, broken, well + "vanished",
		},
		Architectures: []string{"", "hopper"},
		Readings: []Reading{
			reading(func(r *Reading) {
				r.Fan, r.PerformanceState, r.ECC, r.Uncorrected = new(33), new(2), new(true), new(uint64(0))
			}),
			reading(func(*Reading) {}),
		},
		Unread: []string{"<nil>", "<nil>"},
	}
	if got := asked(t); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// reading is what the double tells of both its GPUs, with more.
func reading(more func(*Reading)) Reading {
	r := Reading{
		Utilisation: new(87), MemoryUtilisation: new(12), Temperature: new(61),
		Milliwatts: new(uint64(240_500)), LimitMilliwatts: new(uint64(400_000)), Millijoules: new(uint64(5_000_000_000)),
		ClockMHz: new(1410), MemoryClockMHz: new(1593), Persistence: new(true), Display: new(false), ComputeMode: "exclusive-process",
	}
	more(&r)
	return r
}

// A driver that lacks the functions tells nothing, and a GPU that cannot be reached is an error.
func TestReadingsThatAreNotTold(t *testing.T) {
	old := asked(t, "MISSING_OPTIONAL")
	if want := []Reading{{}, {}}; !reflect.DeepEqual(old.Readings, want) || !slices.Equal(old.Unread, []string{"<nil>", "<nil>"}) {
		t.Errorf("an old driver: %+v, %q", old.Readings, old.Unread)
	}
	for macro, text := range map[string]string{"SICK=15": ErrLost.Error(), "SICK=16": ErrReset.Error()} {
		got := asked(t, macro)
		if got.Unread[0] != "<nil>" || !strings.Contains(got.Unread[1], text) || !reflect.DeepEqual(got.Readings[1], Reading{}) {
			t.Errorf("%s: %+v, %q", macro, got.Readings[1], got.Unread)
		}
	}
}

// The conditions of a GPU that has nothing to tell, and of one of which all is told.
const (
	well   = "[] 0 false false false "
	broken = "[] 3 true true true gpu-reset"
)

func TestConditions(t *testing.T) {
	for _, test := range []struct {
		macro       string
		first, last string // of GPU 1
	}{
		{"SICK=15", well + "lost", well + "lost"},
		{"SICK=16", well + "reset", well + "reset"},
		{"SICK=6", well + "vanished", well + "vanished"},
		{"SICK=999", well + "read health of GPU 1: NVIDIA driver: NVML result 999", well + "read health of GPU 1: NVIDIA driver: NVML result 999"},
		// The GPUs are numbered otherwise then, and keep their indexes with us.
		{"COMES_BACK", well + "lost", broken},
		{"MISSING_OPTIONAL", well, well},
		{"MEMORY_V2_REFUSED", broken, broken},
	} {
		got := asked(t, test.macro).Health
		if len(got) != 7 || got[1] != test.first || got[5] != test.last {
			t.Errorf("%s: %q", test.macro, got)
		}
	}
}

// The mode that counts is the one that the GPU is in, not the one after a reset.
func TestMIGMode(t *testing.T) {
	got := asked(t, "MIG_MODE").Health
	if len(got) != 7 || strings.HasSuffix(got[0], "mig") || got[1] != broken+"mig" {
		t.Errorf("%q", got)
	}
}

func TestOldDriver(t *testing.T) {
	got := asked(t, "MISSING_OPTIONAL")
	if got.Error != "" || got.Version.CUDA != 0 || got.GPUs[0].Reserved != 0 || got.Used != 400 || len(got.Processes) != 2 || !got.Untold {
		t.Errorf("got %+v", got)
	}
}

// What a process has of several MIG instances counts together, and is not known if that of
// one is not.
func TestProcessesOfSeveralInstances(t *testing.T) {
	want := []Process{{PID: 11, Used: 5070, Instances: []int{1, 2}}, {PID: 12, Hidden: true, Instances: []int{1, 2}}}
	if got := asked(t, "MIG_MODE").Processes; len(got) < 2 || !reflect.DeepEqual(got[:2], want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestUtilisationThatIsNotTold(t *testing.T) {
	if got := asked(t, "NO_UTILISATION"); got.Error != "" || !got.Untold {
		t.Errorf("not supported: %+v", got)
	}
	if got := asked(t, "NOBODY_BUSY"); got.Error != "" || got.Untold || len(got.Busy) != 0 {
		t.Errorf("nobody busy: %+v", got)
	}
	if got := asked(t, "ABSURD_UTILISATION"); !got.Driver || !strings.Contains(got.Error, "utilisation of GPU 0") {
		t.Errorf("more samples than there is room for: %+v", got)
	}
}

// A driver without a function that is needed is an error that names it, never
// the end of the process.
func TestBrokenDrivers(t *testing.T) {
	for macro, text := range map[string]string{
		"MISSING_UUID": "lacks nvmlDeviceGetUUID",
		"MISSING_INIT": "lacks nvmlInit_v2",
		"NOT_LOADED":   "the driver is not loaded",
		"BROKEN_GPUS":  "read GPU 1: NVIDIA driver: NVML result 999",
	} {
		if got := asked(t, macro); !got.Driver || !strings.Contains(got.Error, text) {
			t.Errorf("%s: %+v, want an error with %q", macro, got, text)
		}
	}
	for _, macro := range []string{"LOST_GPU", "BROKEN_GPU"} {
		if got := asked(t, macro); len(got.GPUs) != 1 || got.GPUs[0].UUID != "GPU-0" || got.Error != "" {
			t.Errorf("%s of two: %+v", macro, got)
		}
	}
	if got := askedAt(t, "/nonexistent/libnvidia-ml.so.1"); !got.Driver || !strings.Contains(got.Error, "load the library") {
		t.Errorf("no library: %+v", got)
	}
}

// The newest sample of each process counts, in whatever order they come.
func TestLatest(t *testing.T) {
	at := time.Unix(100, 0)
	got := Latest([]Utilisation{{PID: 1, At: at.Add(1), Busy: 0.5}, {PID: 1, At: at, Busy: 0.25}, {PID: 2, At: at, Busy: 1}})
	if want := map[int]float64{1: 50, 2: 100}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
