package kube

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// trimEvery is how often the agent drops the pages of its own program from its memory. Two thirds of the program are
// types and tables of the Kubernetes API, which it uses when it starts and hardly ever again. Pages that it does use come
// back from the page cache in microseconds.
const trimEvery = time.Minute

// trim drops these pages every minute until ctx is done.
func trim(ctx context.Context, log *slog.Logger) {
	program, err := os.Readlink("/proc/self/exe")
	ticker := time.NewTicker(trimEvery)
	defer ticker.Stop()
	for err == nil {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err = trimOnce(program)
	}
	log.WarnContext(ctx, "cannot drop unused pages of the program", "error", err)
}

func trimOnce(program string) error {
	maps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return fmt.Errorf("look at the program's mappings: %w", err)
	}
	defer maps.Close() //nolint:errcheck // only read
	clean, err := cleanMappings(maps, program)
	if err != nil {
		return err
	}
	for _, m := range clean {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("give back a mapping of the program: %w", errno)
		}
	}
	return nil
}

// mapping is a range of addresses.
type mapping struct{ start, end uintptr }

// cleanMappings reads from smaps(5) the mappings of a file that are read-only and were never written: what the dynamic
// linker wrote would be lost. A mapping without the line Anonymous is not clean.
func cleanMappings(smaps io.Reader, file string) ([]mapping, error) {
	var clean []mapping
	var current mapping
	ours := false
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 {
			continue
		}
		if !strings.HasSuffix(fields[0], ":") {
			var err error
			if current, err = parseRange(fields[0]); err != nil {
				return nil, err
			}
			ours = len(fields) == 6 && fields[5] == file && (fields[1] == "r-xp" || fields[1] == "r--p")
			continue
		}
		if ours && fields[0] == "Anonymous:" && len(fields) > 1 && fields[1] == "0" {
			clean = append(clean, current)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("look at the program's mappings: %w", err)
	}
	return clean, nil
}

func parseRange(text string) (mapping, error) {
	low, high, _ := strings.Cut(text, "-")
	start, err := strconv.ParseUint(low, 16, 64)
	if err != nil {
		return mapping{}, fmt.Errorf("read a mapping's address: %w", err)
	}
	end, err := strconv.ParseUint(high, 16, 64)
	if err != nil || end < start {
		return mapping{}, fmt.Errorf("read a mapping's address: %q", text)
	}
	return mapping{uintptr(start), uintptr(end)}, nil
}
