package doctor

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/divvy-gpu/divvy/internal/process"
)

// pageName is the file by which a share's processes tell what they do, and inContainers where containers have it.
const (
	pageName     = "state"
	inContainers = "/run/divvy/share"
)

// Leftover is a process that has the page of a share mapped whose directory is gone: the share has ended.
type Leftover struct {
	process.ID
	// Share is what the share's directory was called, "" where a container had it.
	Share string
}

// Leftovers are those processes that still run in shares that have ended, as far as this one may see it, at most so many. Nobody
// counts what they do, and their calls of CUDA may fail.
func Leftovers(ctx context.Context, most int) (left []Leftover) {
	for _, id := range process.All() {
		if len(left) == most || ctx.Err() != nil {
			break
		}
		if share, gone := endedShare(id.PID); gone && id.Alive() {
			left = append(left, Leftover{id, share})
		}
	}
	return left
}

// endedShare reports whether a process has the page of a share mapped that is gone.
func endedShare(pid int) (share string, gone bool) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return "", false
	}
	defer file.Close()
	table, err := io.ReadAll(io.LimitReader(file, mostMaps))
	if err != nil {
		return "", false // it ends just now
	}
	for line := range bytes.Lines(table) {
		if share, gone = gonePage(string(line)); gone {
			return share, true
		}
	}
	return "", false
}

// gonePage is the share of a line of maps, if that is of a share's page that is gone.
func gonePage(line string) (share string, gone bool) {
	const path = 5
	fields := strings.SplitN(strings.TrimRight(line, "\n"), " ", path+1)
	if len(fields) <= path || !strings.HasSuffix(fields[1], "s") { // a page is shared
		return "", false
	}
	name, deleted := strings.CutSuffix(strings.TrimLeft(fields[path], " "), " (deleted)")
	dir := filepath.Dir(name)
	switch {
	case !deleted || filepath.Base(name) != pageName:
		return "", false
	case dir == inContainers:
		return "", true
	}
	return filepath.Base(dir), filepath.Base(filepath.Dir(dir)) == "tenants"
}
