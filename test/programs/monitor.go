package programs

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// monitor is a program that tells of memory and processes through NVML.
type monitor struct {
	args func(p *place) []string
	read func(text string) ([]seen, error)
	// precision is how exactly it tells bytes.
	precision uint64
	// reserved tells that natively it counts as used what the driver reserves, as the first form of NVML's answer does.
	reserved bool
}

// seen is a GPU as a monitor tells it. Processes maps pids to bytes.
type seen struct {
	Total     uint64         `json:"total"`
	Used      uint64         `json:"used"`
	Processes map[int]uint64 `json:"processes"`
}

const (
	// monitored is the GPU of h100x8 that is watched, in a share or natively.
	monitored    = 2
	monitorLimit = 4 << 30
	ownBytes     = 1 << 30
	foreignBytes = 3 << 30
)

var monitors = []Program{
	watch("gpustat", monitor{
		args: func(*place) []string { return []string{"-m", "gpustat", "--json"} },
		read: readGpustat, precision: 1 << 20,
	}),
	watch("nvitop", nvitop),
	watch("nvidia-ml-py", bindings),
	watch("py3nvml", monitor{
		args: func(p *place) []string { return []string{p.script("look.py"), "py3nvml.py3nvml"} },
		read: readBindings, precision: 1, reserved: true,
	}),
}

var nvitop = monitor{
	args: func(*place) []string { return []string{"-m", "nvitop", "--once", "--ascii"} },
	read: readNvitop, precision: 1 << 30 / 100,
}

// bindings are NVIDIA's own for Python.
var bindings = monitor{
	args: func(p *place) []string { return []string{p.script("look.py"), "pynvml"} },
	read: readBindings, precision: 1, reserved: true,
}

func watch(name string, m monitor) Program {
	return Program{Name: name, machine: "h100x8", gpu: monitored, limit: monitorLimit, check: m.check}
}

// beside holds memory with gpubench in a place, asks for more than a share has, and runs a program beside the holder.
// It prints the answers of gpubench first. $1 is gpubench, $2 the device, $3 and $4 are the amounts.
const beside = `bench=$1 device=$2 own=$3 more=$4
shift 4
"$bench" hold --device "$device" --bytes "$own" | {
	read -r line
	echo "$line"
	"$bench" alloc --device "$device" --bytes "$more" --count 1 || true
	"$@"
	kill "$(echo "$line" | sed 's/.*"pid":\([0-9]*\).*/\1/')"
}`

// holding is what gpubench prints.
type holding struct {
	PID    int    `json:"pid"`
	Result string `json:"result"`
}

func (m monitor) check(ctx context.Context, p *place) (err error) {
	bench := filepath.Join(string(p.Tree), "bin", "gpubench")
	stranger, end, err := hold(ctx, p, bench)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	device := "0"
	if p.isNative() {
		device = strconv.Itoa(monitored)
	}
	cmd := p.command(ctx, append([]string{
		"sh", "-c", beside, "sh", bench, device, strconv.Itoa(ownBytes), strconv.Itoa(monitorLimit),
	}, p.python("monitors", m.args(p)...)...)...)
	onWideTerminal(cmd)
	input, err := cmd.StdinPipe() // which the holder reads to its end
	if err != nil {
		return err
	}
	defer input.Close()
	text, err := output(cmd)
	if err != nil {
		return err
	}
	own, asked, rest, err := answers(text)
	if err != nil {
		return fmt.Errorf("read what gpubench said in %q: %w", text, err)
	}
	found, err := m.read(rest)
	if err != nil {
		return fmt.Errorf("read %q: %w", rest, err)
	}
	want := "CUDA_ERROR_OUT_OF_MEMORY"
	if p.isNative() {
		want = "CUDA_SUCCESS"
	}
	err = m.compare(p, found, own, stranger)
	if asked.Result != want {
		err = errors.Join(err, fmt.Errorf("beside it a request of %d bytes ends with %s, want %s", monitorLimit, asked.Result, want))
	}
	return err
}

// onWideTerminal has a monitor print everything.
func onWideTerminal(cmd *exec.Cmd) *exec.Cmd {
	cmd.Env = append(cmd.Env, "COLUMNS=120", "LINES=100", "TERM=dumb")
	return cmd
}

// answers divides the output of [beside] into what gpubench said twice and what the program said.
func answers(text string) (own, asked holding, rest string, err error) {
	lines := strings.SplitN(text, "\n", 3)
	if len(lines) < 3 {
		return own, asked, "", io.ErrUnexpectedEOF
	}
	err = errors.Join(json.Unmarshal([]byte(lines[0]), &own), json.Unmarshal([]byte(lines[1]), &asked))
	return own, asked, lines[2], err
}

// hold takes memory of the monitored GPU outside every share, until end is called.
func hold(ctx context.Context, p *place, bench string) (stranger holding, end func() error, err error) {
	cmd := p.outside(ctx, bench, "hold", "--device", strconv.Itoa(monitored), "--bytes", strconv.Itoa(foreignBytes))
	input, err := cmd.StdinPipe()
	if err != nil {
		return stranger, nil, err
	}
	said, err := cmd.StdoutPipe()
	if err != nil {
		return stranger, nil, err
	}
	if err := cmd.Start(); err != nil {
		return stranger, nil, fmt.Errorf("start a holder: %w", err)
	}
	end = func() error {
		input.Close()
		return cmd.Wait()
	}
	line, err := bufio.NewReader(said).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &stranger)
	}
	if err != nil || stranger.Result != "CUDA_SUCCESS" {
		return stranger, nil, errors.Join(fmt.Errorf("hold memory: %q: %w", line, err), end())
	}
	return stranger, end, nil
}

// compare returns what a monitor does not tell as it is.
func (m monitor) compare(p *place, found []seen, own, stranger holding) error {
	context := uint64(p.model.GPU.Context)
	processes := map[int]uint64{own.PID: context + ownBytes}
	number, count, total := 0, 1, p.limit
	used := context + ownBytes
	if p.isNative() {
		number, count = monitored, len(p.model.GPUs)
		processes[stranger.PID] = context + foreignBytes
		total, used = uint64(p.model.GPU.Memory), used+context+foreignBytes
		if m.reserved {
			used += uint64(p.model.GPU.Reserved)
		}
	}
	if len(found) != count {
		return fmt.Errorf("it shows %d GPUs, want %d", len(found), count)
	}
	shown := found[number]
	var faults []error
	if !m.near(shown.Total, total) || !m.near(shown.Used, used) {
		faults = append(faults, fmt.Errorf("it shows %d of %d bytes in use, want %d of %d", shown.Used, shown.Total, used, total))
	}
	if !slices.Equal(slices.Sorted(maps.Keys(shown.Processes)), slices.Sorted(maps.Keys(processes))) {
		return errors.Join(append(faults, fmt.Errorf("it shows the processes %v, want %v", shown.Processes, processes))...)
	}
	for pid, bytes := range processes {
		if !m.near(shown.Processes[pid], bytes) {
			faults = append(faults, fmt.Errorf("it shows process %d with %d bytes, want %d", pid, shown.Processes[pid], bytes))
		}
	}
	return errors.Join(faults...)
}

// near tells whether a number of bytes is another one as exactly as the monitor tells it.
func (m monitor) near(shown, want uint64) bool {
	return max(shown, want)-min(shown, want) < m.precision
}

func readBindings(text string) (found []seen, err error) {
	err = json.Unmarshal([]byte(text), &found)
	return found, err
}

func readGpustat(text string) ([]seen, error) {
	var list struct {
		GPUs []struct {
			Total     uint64 `json:"memory.total"`
			Used      uint64 `json:"memory.used"`
			Processes []struct {
				PID    int    `json:"pid"`
				Memory uint64 `json:"gpu_memory_usage"`
			} `json:"processes"`
		} `json:"gpus"`
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, err
	}
	var found []seen
	for _, gpu := range list.GPUs {
		one := seen{Total: gpu.Total << 20, Used: gpu.Used << 20, Processes: map[int]uint64{}}
		for _, process := range gpu.Processes {
			one.Processes[process.PID] = process.Memory << 20
		}
		found = append(found, one)
	}
	return found, nil
}

var (
	nvitopGPU     = regexp.MustCompile(`\| +(\S+) / (\S+iB) \|`)
	nvitopProcess = regexp.MustCompile(`(?m)^\| +(\d+) +(\d+) C +\S+ +(\S+) `)
)

func readNvitop(text string) ([]seen, error) {
	var found []seen
	var faults []error
	amount := func(shown string) uint64 {
		bytes, err := readAmount(shown)
		faults = append(faults, err)
		return bytes
	}
	for _, match := range nvitopGPU.FindAllStringSubmatch(text, -1) {
		found = append(found, seen{Used: amount(match[1]), Total: amount(match[2]), Processes: map[int]uint64{}})
	}
	for _, match := range nvitopProcess.FindAllStringSubmatch(text, -1) {
		gpu, err := strconv.Atoi(match[1])
		if err != nil || gpu >= len(found) {
			return nil, fmt.Errorf("a process of GPU %s of %d", match[1], len(found))
		}
		pid, err := strconv.Atoi(match[2])
		faults = append(faults, err)
		found[gpu].Processes[pid] = amount(match[3])
	}
	return found, errors.Join(faults...)
}

// readAmount reads an amount of memory such as 1544MiB or 79.65GiB.
func readAmount(shown string) (uint64, error) {
	number := strings.TrimRight(shown, "BGKMi")
	value, err := strconv.ParseFloat(number, 64)
	unit := map[string]float64{"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[shown[len(number):]]
	if err != nil || unit == 0 {
		return 0, fmt.Errorf("%q is no amount of memory", shown)
	}
	return uint64(value * unit), nil
}
