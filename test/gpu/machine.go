package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// Compute modes of a GPU, by NVML's numbers.
const (
	modeProhibited = 2
	modeExclusive  = 3
)

type gpu struct {
	Index      int       `json:"index"`
	UUID       string    `json:"uuid"`
	Name       string    `json:"name"`
	Capability string    `json:"capability"`
	Total      uint64    `json:"total"`
	Used       uint64    `json:"used"`
	Free       uint64    `json:"free"`
	Mode       int       `json:"mode"`
	MIG        bool      `json:"mig"`
	Busy       int       `json:"busy"`
	Code       int       `json:"code"`
	Processes  []process `json:"processes"`
	// ProcessesCode is NVML's, 0 where it lists processes.
	ProcessesCode int `json:"processes_code"`
}

// process is one that NVML lists; Bytes is -1 where the driver does not tell.
type process struct {
	PID   int   `json:"pid"`
	Bytes int64 `json:"bytes"`
}

// machine is what NVML says of it.
type machine struct {
	Simulated bool   `json:"simulated"`
	Driver    string `json:"driver"`
	CUDA      int    `json:"cuda"`
	Code      int    `json:"code"`
	GPUs      []gpu  `json:"gpus"`
}

// codeText says what NVML means by some numbers.
var codeText = map[int]string{
	9: ", the kernel has no driver loaded", 12: ", a library is missing", 15: ", the GPU is lost",
	17: ", the operating system refuses the GPU", 18: ", library and kernel module are of different versions",
}

// cannotOpen is gpuprobe's exit status where NVML's library is missing or is not one.
const cannotOpen = 3

// errNVML marks a machine whose NVML cannot be asked.
var errNVML = errors.New("NVML cannot be asked")

// look reads the machine, chooses a GPU, and tries whether a program can use it, natively and in a share.
func (b *bench) look(ctx context.Context) {
	t := &trial{bench: b, ctx: ctx}
	seen, err := t.nvml()
	if err != nil {
		b.unable = err.Error()
		return
	}
	b.machine = seen
	if b.keep(ctx); b.unable != "" {
		return
	}
	if b.gpu, b.unable = b.pick(t); b.unable != "" {
		return
	}
	b.env = append(withoutVisible(b.env), "CUDA_VISIBLE_DEVICES="+b.gpu.UUID)
	if o, err := t.call(b.natively(), b.gpubench(), "info"); err != nil {
		b.unable = err.Error()
	} else if o.status != 0 {
		b.unable = "no program can use the GPU: " + o.say()
	}
	if b.unable != "" {
		return
	}
	switch o, err := t.call(b.share(flags{memory: b.size()}), b.gpubench(), "info"); {
	case err != nil:
		b.noShare = err.Error()
	case o.status != 0:
		b.noShare = "no share can be made: " + o.say()
	}
}

func withoutVisible(env []string) (kept []string) {
	for _, entry := range env {
		if !strings.HasPrefix(entry, "CUDA_VISIBLE_DEVICES=") {
			kept = append(kept, entry)
		}
	}
	return kept
}

// nvml asks for the machine as it is now, outside any share.
func (t *trial) nvml() (machine, error) {
	var m machine
	o, err := t.call(t.natively(), t.gpuprobe(), "machine")
	if err != nil {
		return m, fmt.Errorf("%w: %w", errNVML, err)
	}
	if o.status == cannotOpen {
		return m, fmt.Errorf("%w: no driver of NVIDIA's is found here: %s", errNVML, strings.TrimPrefix(lastLine(o.err), "gpuprobe: "))
	}
	if err := o.last(&m); err != nil {
		return m, fmt.Errorf("%w: %w", errNVML, err)
	}
	if m.Code != 0 {
		return m, fmt.Errorf("%w: it answers %d%s", errNVML, m.Code, codeText[m.Code])
	}
	return m, nil
}

// now is the chosen GPU as it is now.
func (t *trial) now() (gpu, error) {
	m, err := t.nvml()
	if err != nil {
		return gpu{}, err
	}
	for _, g := range m.GPUs {
		if g.UUID == t.gpu.UUID {
			return g, nil
		}
	}
	return gpu{}, fmt.Errorf("find the GPU: %w", errNVML)
}

// pick chooses the GPU: the one that was asked for, else the one with the most free memory of those that CUDA shows and
// that serve. It says why there is none.
func (b *bench) pick(t *trial) (gpu, string) {
	visible, err := t.visible()
	if err != nil {
		return gpu{}, err.Error()
	}
	var best gpu
	var refused []string
	for _, g := range b.machine.GPUs {
		if b.options.gpu != "" && b.options.gpu != strconv.Itoa(g.Index) {
			continue
		}
		if why := unfit(g, visible); why != "" {
			refused = append(refused, fmt.Sprintf("GPU %d (%s) %s", g.Index, g.Name, why))
		} else if best.UUID == "" || g.Free > best.Free {
			best = g
		}
	}
	switch {
	case best.UUID != "":
		return best, ""
	case len(refused) > 0:
		return best, strings.Join(refused, "; ")
	}
	if b.options.gpu != "" && len(b.machine.GPUs) > 0 {
		return best, fmt.Sprintf("there is no GPU %s: -gpu takes an index from 0 to %d", b.options.gpu, len(b.machine.GPUs)-1)
	}
	return best, "there is no GPU"
}

// unfit says why a GPU cannot be tried.
func unfit(g gpu, visible []string) string {
	switch {
	case g.Code != 0:
		return fmt.Sprintf("does not answer NVML, which says %d%s", g.Code, codeText[g.Code])
	case g.MIG:
		return "is in MIG mode: mig_share tries one of its instances, the other cases a whole GPU"
	case g.Mode == modeProhibited:
		return "is in compute mode prohibited"
	case g.Mode == modeExclusive && len(g.Processes) > 0:
		return "is in compute mode exclusive-process, and another process has it"
	}
	for _, uuid := range visible {
		if uuid == g.UUID {
			return ""
		}
	}
	return "is not shown by CUDA to this process"
}

// visible lists the UUIDs of the GPUs that CUDA shows to this user.
func (t *trial) visible() ([]string, error) {
	o, err := t.call(t.natively(), filepath.Join(t.tree, "libexec", "divvy", "divvy-probe"), "--order", "libcuda.so.1")
	if err != nil {
		return nil, err
	}
	var list struct{ UUIDs []string }
	if err := json.Unmarshal([]byte(o.out), &list); err != nil || o.status != 0 {
		return nil, fmt.Errorf("ask CUDA for its GPUs: %s", o.say())
	}
	return list.UUIDs, nil
}

// size is a share's memory: 4 GiB, or less where the GPU has less free. A share's limit has to hold a context and
// leave as much again.
func (b *bench) size() uint64 {
	return min(4*gib, b.gpu.Free/2/(64*mib)*(64*mib))
}

// others says who else uses the GPU, as far as NVML tells.
func (g gpu) others() string {
	switch {
	case len(g.Processes) > 0 && g.Busy > 5:
		return fmt.Sprintf("%d other processes have the GPU, which is %d %% busy", len(g.Processes), g.Busy)
	case g.Busy > 5:
		return fmt.Sprintf("somebody keeps the GPU %d %% busy", g.Busy)
	}
	return ""
}
