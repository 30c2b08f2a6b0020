package daemon

import (
	"errors"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/nvml"
)

func TestWhyNotSwapped(t *testing.T) {
	const uuid = "GPU-0a"
	for name, c := range map[string]struct {
		capability string
		faulting   []string
		err        error
		want       string
	}{
		"Pascal":                       {"6.0", []string{"GPU-0b", "gpu-0A"}, nil, ""},
		"later":                        {"12.0", []string{uuid}, nil, ""},
		"of an unknown kind":           {"", []string{uuid}, nil, ""},
		"Maxwell":                      {"5.2", []string{uuid}, nil, "compute capability is 5.2"},
		"Maxwell, and CUDA is silent":  {"5.2", nil, errors.New("boom"), "compute capability is 5.2"},
		"CUDA is silent":               {"8.0", nil, errors.New("boom"), "does not tell whether it brings memory that a program touches: boom"},
		"without concurrent access":    {"8.0", []string{"GPU-0b"}, nil, "no concurrent access to managed memory"},
		"no GPU has concurrent access": {"8.0", nil, nil, "no concurrent access to managed memory"},
	} {
		if got := whyNotSwapped(c.capability, uuid, c.faulting, c.err); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestWhyNotSuspended(t *testing.T) {
	for name, c := range map[string]struct {
		processor string
		version   nvml.Version
		want      string
	}{
		"new enough":          {"amd64", nvml.Version{Driver: "570.86.10", CUDA: 12080}, ""},
		"of an unknown kind":  {"amd64", nvml.Version{}, ""},
		"another processor":   {"arm64", nvml.Version{Driver: "580.65.06", CUDA: 13000}, "this is arm64"},
		"an old driver":       {"amd64", nvml.Version{Driver: "535.183.01", CUDA: 12020}, "driver 535.183.01 is older than 570"},
		"an old CUDA version": {"amd64", nvml.Version{Driver: "570.10", CUDA: 12070}, "CUDA 12.8"},
	} {
		if got := whyNotSuspended(c.processor, c.version); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
