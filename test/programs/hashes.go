package programs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// hashes is Debian's hashcat. It compiles its kernels with NVIDIA's NVRTC and asks for its memory in large pieces.
var hashes = Program{Name: "hashcat", machine: "a100-80g", limit: 1 << 30, check: checkHashes}

// Sizes of what hashcat gives the GPU at once: launches per thread and threads. The larger one takes 1.4 GiB.
var (
	smallWork = []string{"-n", "1", "-T", "64"}
	largeWork = []string{"-n", "64", "-T", "256"}
)

const (
	// hopeless is the MD5 of a word with letters, so three digits never have it: the search ends without it wherever it
	// runs.
	hopeless  = "5d41402abc4b2a76b9719d911017c592"
	exhausted = 5 // hashcat's number for a search that is over
)

func checkHashes(ctx context.Context, p *place) error {
	faults := []error{listed(ctx, p)}
	text, err := searched(p.command(ctx, p.hashcat(search(smallWork)...)...))
	faults = append(faults, over(text, err))
	text, err = searched(p.command(ctx, p.hashcat(search(largeWork)...)...))
	if p.isNative() {
		faults = append(faults, over(text, err))
	} else if err == nil || !strings.Contains(err.Error(), "Not enough allocatable device memory") {
		faults = append(faults, fmt.Errorf("past its limit hashcat says %q, want that memory is not enough", text), err)
	}
	report, err := p.report(ctx)
	if err == nil && kernels(report) == 0 {
		err = errors.New("the GPU has executed no kernel")
	}
	return errors.Join(append(faults, err)...)
}

// hashcat is a command of hashcat that uses no other driver.
func (p *place) hashcat(args ...string) []string {
	program := filepath.Join(p.Folder, "debian/usr/share/hashcat/hashcat")
	return p.unpacked(nil, append([]string{program, "--backend-ignore-opencl"}, args...)...)
}

// search is the search for the hopeless word. The test of hashcat itself needs kernels that are executed.
func search(work []string) []string {
	return append([]string{
		"-m", "0", "-a", "3", "-u", "1", "--force", "--quiet", "--status-json", "--self-test-disable",
		"--potfile-disable", "--logfile-disable", "--restore-disable", "--hwmon-disable", hopeless, "?d?d?d",
	}, work...)
}

// searched returns what hashcat says. Its exit status is 1 after a search that found nothing.
func searched(cmd *exec.Cmd) (string, error) {
	text, err := output(cmd)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		return text, nil
	}
	if err == nil {
		err = errors.New("it ends with status 0")
	}
	return text, err
}

// over checks that a search has tried every word.
func over(text string, err error) error {
	if err != nil {
		return err
	}
	var told struct {
		Status   int    `json:"status"`
		Progress [2]int `json:"progress"`
		Found    [2]int `json:"recovered_hashes"`
		Devices  []struct {
			Name string `json:"device_name"`
		}
	}
	at := strings.Index(text, "{")
	if at < 0 {
		return fmt.Errorf("hashcat tells no status: %q", text)
	}
	if err := json.Unmarshal([]byte(text[at:]), &told); err != nil {
		return fmt.Errorf("read %q: %w", text, err)
	}
	if told.Status != exhausted || told.Progress != [2]int{1000, 1000} || told.Found != [2]int{0, 1} || len(told.Devices) != 1 {
		return fmt.Errorf("hashcat ends with %+v, want 1000 of 1000 words tried and none found", told)
	}
	return nil
}

// listed checks the memory that hashcat shows of its devices.
func listed(ctx context.Context, p *place) error {
	text, err := output(p.command(ctx, p.hashcat("-I")...))
	if err != nil {
		return err
	}
	if want := fmt.Sprintf("Memory.Total...: %d MB\n", p.total()>>20); strings.Count(text, want) != 1 {
		return fmt.Errorf("hashcat shows %q, want one %q", text, want)
	}
	return nil
}
