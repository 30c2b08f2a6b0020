package integration

import (
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Debian's ffmpeg as a client of the CUDA driver: it finds the driver with
// dlopen, makes a context of its own and copies each frame to the GPU and back.

// picture is a moving test picture of the given size.
func picture(size string) []string {
	return []string{"-f", "lavfi", "-i", "testsrc2=size=" + size + ":rate=25:duration=1"}
}

// throughGPU are the options that send frames through the GPU's memory.
var throughGPU = []string{"-init_hw_device", "cuda=gpu:0", "-filter_hw_device", "gpu"}

const (
	onCPU = "format=yuv420p"
	onGPU = "format=yuv420p,hwupload_cuda,hwdownload,format=yuv420p"
)

// frames runs ffmpeg and returns the MD5 of each frame, without the header that
// names the program's version.
func frames(t *testing.T, where place, size string, before []string, filter string) ([]string, error) {
	t.Helper()
	args := slices.Concat([]string{"-nostdin", "-loglevel", "error"}, before, picture(size),
		[]string{"-vf", filter, "-f", "framemd5", "-"})
	cmd := where(t, program(t, "ffmpeg"), args...)
	var said strings.Builder
	cmd.Stderr = &said
	text, err := cmd.Output()
	if err != nil {
		return nil, errors.Join(err, errors.New(said.String()))
	}
	var sums []string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") {
			sums = append(sums, line)
		}
	}
	return sums, nil
}

func TestVideoFrames(t *testing.T) {
	program(t, "ffmpeg")
	m := startMachine(t, "a100-80g")
	share := m.tenant(t, 2<<30, 0)
	want, err := frames(t, m.outside(), "1280x720", nil, onCPU)
	if err != nil || len(want) != 25 {
		t.Fatalf("frames on the CPU: %d, %v", len(want), err)
	}
	for _, way := range []struct {
		name  string
		where place
	}{
		{"the simulated driver alone", m.outside()},
		{"a share", share},
	} {
		got, err := frames(t, way.where, "1280x720", throughGPU, onGPU)
		if err != nil {
			t.Errorf("frames through %s: %v", way.name, err)
		} else if !slices.Equal(got, want) {
			t.Errorf("frames through %s differ from the CPU's", way.name)
		}
	}
	if used := m.report(t).GPUs[0].Used; used != 0 {
		t.Errorf("after ffmpeg %d bytes are in use", used)
	}
	if peak := m.peak(t); peak <= m.contextBytes {
		t.Errorf("in the share ffmpeg held %d bytes, a context alone has %d", peak, m.contextBytes)
	}
}

// ffmpeg is expected to say what happened and to leave by itself.
func TestVideoOutOfMemory(t *testing.T) {
	program(t, "ffmpeg")
	for _, test := range []struct {
		name  string
		limit func(contextBytes uint64) uint64
	}{
		{"a frame does not fit", func(contextBytes uint64) uint64 { return contextBytes + 8<<20 }}, // it has 12 MB
		{"the context does not fit", func(contextBytes uint64) uint64 { return contextBytes / 2 }},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := startMachine(t, "a100-80g")
			limit := test.limit(m.contextBytes)
			_, err := frames(t, m.tenant(t, limit, 0), "3840x2160", throughGPU, onGPU)
			var exit *exec.ExitError
			if !errors.As(err, &exit) || !exit.Exited() {
				t.Fatalf("under a limit too small ffmpeg ended with %v, want an exit status", err)
			}
			if !strings.Contains(err.Error(), "CUDA_ERROR_OUT_OF_MEMORY") {
				t.Errorf("ffmpeg does not say that memory ran out: %v", err)
			}
			if peak := m.peak(t); peak > limit {
				t.Errorf("the tenant held %d bytes, %d are allowed", peak, limit)
			}
		})
	}
}
