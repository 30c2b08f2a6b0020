package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/version"
)

const reportName = "divvy-gpu-report.md"

// report is what is sent: Markdown for people, with the same as JSON at its end.
type report struct {
	Version    string    `json:"version"`
	Date       string    `json:"date"`
	Simulated  bool      `json:"simulated,omitempty"`
	Unable     string    `json:"unable,omitempty"`     // why no whole GPU was tried
	Unfinished bool      `json:"unfinished,omitempty"` // interrupted, or the time was over
	Thorough   bool      `json:"thorough,omitempty"`
	Driver     string    `json:"driver"`
	CUDA       string    `json:"cuda"`
	Tried      int       `json:"tried"` // index of the GPU
	GPUs       []card    `json:"gpus"`
	System     []fact    `json:"system"`
	Cases      []outcome `json:"cases"`
	secrets    *scrubber
}

// card is a GPU as a report has it.
type card struct {
	Name       string `json:"name"`
	Capability string `json:"capability"`
	MiB        uint64 `json:"mib"`
	FreeMiB    uint64 `json:"free_mib"`
	Mode       string `json:"compute_mode"`
	MIG        bool   `json:"mig,omitempty"`
	Busy       int    `json:"busy_percent"`
	Processes  int    `json:"processes"`
}

func newReport(ctx context.Context, b *bench) *report {
	cwd, _ := os.Getwd()
	r := &report{Version: version.Full(), Date: time.Now().UTC().Format(time.DateOnly), Simulated: b.simgpu != "" || b.machine.Simulated, Thorough: b.thorough,
		Driver: b.machine.Driver, CUDA: fmt.Sprintf("%d.%d", b.machine.CUDA/1000, b.machine.CUDA%1000/10), Tried: b.gpu.Index,
		secrets: newScrubber(ctx, b.tree, b.scratch, cwd)}
	r.Unable = r.secrets.clean(b.unable)
	modes := []string{"default", "exclusive thread", "prohibited", "exclusive process"}
	for _, g := range b.machine.GPUs {
		mode := "unknown"
		if g.Mode >= 0 && g.Mode < len(modes) {
			mode = modes[g.Mode]
		}
		r.GPUs = append(r.GPUs, card{Name: g.Name, Capability: g.Capability, MiB: g.Total / mib, FreeMiB: g.Free / mib, Mode: mode,
			MIG: g.MIG, Busy: g.Busy, Processes: len(g.Processes)})
	}
	r.System = r.clean(system(ctx, b))
	return r
}

// add takes a case's outcome, without secrets.
func (r *report) add(o outcome) {
	o.Why, o.Facts = r.secrets.clean(o.Why), r.clean(o.Facts)
	r.Cases = append(r.Cases, o)
}

func (r *report) clean(facts []fact) []fact {
	var cleaned []fact
	for _, f := range facts {
		cleaned = append(cleaned, fact{What: r.secrets.clean(f.What), Native: r.secrets.clean(f.Native), Share: r.secrets.clean(f.Share), Seen: r.secrets.clean(f.Seen)})
	}
	return cleaned
}

func (r *report) count(outcome string) (n int) {
	for _, c := range r.Cases {
		if c.Outcome == outcome {
			n++
		}
	}
	return n
}

// answered reports whether any case had programs run on a GPU.
func (r *report) answered() bool {
	return slices.ContainsFunc(r.Cases, func(c outcome) bool { return c.ran })
}

func (r *report) summary() string {
	text := fmt.Sprintf("%d as expected, %d another answer, %d not answered, %d skipped", r.count(passed), r.count(differed), r.count(failed), r.count(skipped))
	if r.Unfinished {
		text += "; not finished"
	}
	return text
}

// plainVersion is the part of a kernel's release that is no name that somebody gave it.
var plainVersion = regexp.MustCompile(`^\d+(?:\.\d+)*`)

// system describes what else matters for the answers.
func system(ctx context.Context, b *bench) []fact {
	var facts []fact
	add := func(what, seen string) { facts = append(facts, fact{What: what, Seen: seen}) }
	release := readLine("/proc/sys/kernel/osrelease")
	add("Linux", plainVersion.FindString(release)+", "+runtime.GOARCH)
	add("system", osName())
	add("processor", fmt.Sprintf("%d x %s", runtime.NumCPU(), cpuName()))
	add("root", yes(os.Geteuid() == 0))
	add("container", yes(slices.ContainsFunc([]string{"/.dockerenv", "/run/.containerenv", "/run/systemd/container"}, exists) || os.Getenv("container") != ""))
	add("Windows Subsystem for Linux", yes(strings.Contains(strings.ToLower(release), "microsoft")))
	add("system agent", yes(exists("/run/divvy/agent.sock")))
	within, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	o, err := finish(within, []string{filepath.Join(b.tree, "libexec", "divvy", "divvy-enter"), "--probe"}, b.env, nil)
	add("namespaces of ordinary users", yes(err == nil && o.status == 0))
	add("kernel module", kernelModule())
	return facts
}

// kernelModule says which of NVIDIA's kernel modules is loaded: they differ in the pids that they tell.
func kernelModule() string {
	text := readLine("/proc/driver/nvidia/version")
	switch {
	case text == "":
		return "none to be seen"
	case strings.Contains(text, "Open Kernel Module"):
		return "open"
	}
	return "closed"
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

func readLine(file string) string {
	text, _ := os.ReadFile(file)
	return firstLine(string(text))
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndex(text, "\n")+1:]
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// field finds a line that begins with a key, and returns what follows.
func field(file, key, between string) string {
	text, _ := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, between); ok && strings.TrimSpace(name) == key {
			return strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	return "unknown"
}

func osName() string  { return field("/etc/os-release", "PRETTY_NAME", "=") }
func cpuName() string { return field("/proc/cpuinfo", "model name", ":") }

func bytesText(bytes uint64) string {
	if bytes >= gib {
		return fmt.Sprintf("%.2f GiB", float64(bytes)/gib)
	}
	return fmt.Sprintf("%.0f MiB", float64(bytes)/mib)
}

// reportPlace finds out where the report can be written before anything takes time. Unless a place is wanted, it is one
// where no file is: an earlier report took minutes.
func reportPlace(wanted string) (string, error) {
	if wanted != "" {
		return makeReport(wanted, 0)
	}
	var faults []error
	for _, file := range append([]string{reportName}, otherPlaces()...) {
		place, err := freePlace(file)
		if err == nil {
			return place, nil
		}
		faults = append(faults, err)
	}
	return "", fmt.Errorf("find a place for the report: %w", errors.Join(faults...))
}

// mostReports is how many reports one folder takes.
const mostReports = 99

// freePlace makes a file of that name, or of the name with the first number from 2 on that is free.
func freePlace(file string) (place string, err error) {
	extension := filepath.Ext(file)
	place, err = makeReport(file, os.O_EXCL)
	for n := 2; n <= mostReports && errors.Is(err, os.ErrExist); n++ {
		place, err = makeReport(fmt.Sprintf("%s-%d%s", strings.TrimSuffix(file, extension), n, extension), os.O_EXCL)
	}
	return place, err
}

func makeReport(place string, flags int) (string, error) {
	file, err := os.OpenFile(place, os.O_WRONLY|os.O_CREATE|flags, 0o644)
	if err != nil {
		return "", err
	}
	place, err = filepath.Abs(place)
	return place, errors.Join(err, file.Close())
}

// otherPlaces are for a report that has no room where it should be.
func otherPlaces() []string {
	home, _ := os.UserHomeDir()
	return []string{filepath.Join(home, reportName), filepath.Join(os.TempDir(), reportName)}
}

// removeEmpty takes back a file that was made for a report, if it is still empty.
func removeEmpty(place string) {
	if info, err := os.Stat(place); err == nil && info.Mode().IsRegular() && info.Size() == 0 {
		_ = os.Remove(place)
	}
}

// writeSomewhere writes the report at its place or, where the disk is full by now, at another one: the test took minutes.
func (r *report) writeSomewhere(place string) (string, error) {
	var faults []error
	for _, p := range append([]string{place}, otherPlaces()...) {
		err := r.write(p)
		if err == nil {
			return p, nil
		}
		removeEmpty(p)
		faults = append(faults, err)
	}
	return "", errors.Join(faults...)
}

func (r *report) write(place string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if err := os.WriteFile(place, []byte(r.page()+"\n## The same for programs\n\n```json\n"+string(text)+"\n```\n"), 0o644); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
