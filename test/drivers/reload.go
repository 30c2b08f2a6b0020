package drivers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/divvy-gpu/divvy/internal/driver"
)

// Reload is a library that is loaded, called once and unloaded again, in some threads at once.
type Reload struct {
	Library  driver.Library
	Function string
	Rounds   int
	Threads  int
}

// Reloads are all that are compared. A cuInit that fails for want of a GPU leaves threads and descriptors behind each time
// (555), and NVML's takes milliseconds, so these have fewer rounds.
var Reloads = []Reload{
	{driver.CUDA, "cuDriverGetVersion", 1000, 1},
	{driver.CUDA, "cuDriverGetVersion", 1000, 8},
	{driver.CUDA, "cuInit", 40, 4},
	{driver.NVML, "nvmlDeviceGetCount_v2", 1000, 1},
	{driver.NVML, "nvmlDeviceGetCount_v2", 1000, 8},
	{driver.NVML, "nvmlInit_v2", 100, 4},
}

// Growth is by how much what a process holds has grown in nine tenths of the rounds. Heap and Resident are bytes.
type Growth struct{ Mappings, Descriptors, Threads, Heap, Resident int }

// slack is what may differ though nothing was forgotten: which threads got a heap of their own, what lies in which page.
var slack = Growth{Mappings: 16, Heap: 16 << 10, Resident: 512 << 10}

// Beyond reports whether a growth is more than another by more than that.
func (g Growth) Beyond(other Growth) bool {
	return g.Mappings > other.Mappings+slack.Mappings || g.Descriptors > other.Descriptors || g.Threads > other.Threads ||
		g.Heap > other.Heap+slack.Heap || g.Resident > other.Resident+slack.Resident
}

// Grow reloads a library in a place.
func (p *Pair) Grow(ctx context.Context, r Reload, place Place) (g Growth, err error) {
	program := filepath.Join(p.dir, "reload")
	if _, err := os.Stat(program); errors.Is(err, os.ErrNotExist) {
		if err := build(program, "reload.c"); err != nil {
			return g, err
		}
	}
	cmd := place.Command(ctx, nil, program, string(r.Library), r.Function, strconv.Itoa(r.Rounds), strconv.Itoa(r.Threads))
	var said bytes.Buffer
	cmd.Stderr = &said
	text, err := cmd.Output()
	if err != nil {
		return g, fmt.Errorf("load %s again and again, %s: %w: %s", r.Library, place.Name, err, said.String())
	}
	if _, err := fmt.Sscan(string(text), &g.Mappings, &g.Descriptors, &g.Threads, &g.Heap, &g.Resident); err != nil {
		return g, fmt.Errorf("read by how much a process grew: %w: %q", err, text)
	}
	return g, nil
}
