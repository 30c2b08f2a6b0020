package v1alpha1_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

func TestParseGPUModels(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "  ": "", "A100": "A100", " A100 , H100": "A100,H100", "NVIDIA A100-SXM4-80GB": "NVIDIA A100-SXM4-80GB",
	} {
		got, err := v1alpha1.ParseGPUModels(text)
		if err != nil || string(got) != want {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
	many := make([]string, 17)
	for i := range many {
		many[i] = fmt.Sprint("M", i)
	}
	for _, text := range []string{",", "A100,", "A100,a100", "A100|H100", `") || true || ("`, "--", strings.Repeat("A", 65), strings.Join(many, ","), "A100\n"} {
		got, err := v1alpha1.ParseGPUModels(text)
		if text == "A100\n" {
			if err != nil || got != "A100" {
				t.Errorf("%q: %q, %v", text, got, err)
			}
			continue
		}
		if !errors.Is(err, v1alpha1.ErrRequest) || got != "" {
			t.Errorf("%q was taken as %q: %v", text, got, err)
		}
	}
}

func TestParseGPUPreference(t *testing.T) {
	for text, want := range map[string]string{"most-capable": "", " least-capable ": "", "H100, A100": "H100 A100"} {
		got, err := v1alpha1.ParseGPUPreference(text)
		if err != nil || strings.Join(got.Names(), " ") != want {
			t.Errorf("%q: %q names %v, %v", text, got, got.Names(), err)
		}
	}
	for _, text := range []string{"most-capable,A100", "A100,least-capable", "A100;H100"} {
		if got, err := v1alpha1.ParseGPUPreference(text); !errors.Is(err, v1alpha1.ErrRequest) {
			t.Errorf("%q was taken as %q", text, got)
		}
	}
}

func TestModelMatches(t *testing.T) {
	for _, test := range []struct {
		name, model string
		want        bool
	}{
		{"A100", "NVIDIA A100-SXM4-80GB", true},
		{"a100 80gb", "NVIDIA A100 80GB PCIe", true},
		{"A10", "NVIDIA A100 80GB PCIe", false},
		{"A100 PCIe", "NVIDIA A100 80GB PCIe", false},
		{"NVIDIA A100 80GB PCIe", "NVIDIA A100 80GB PCIe", true},
		{"G2", "G2", true},
		{"G2", "G3", false},
		{"V100", "V100M16", false},
		{"", "G2", false},
	} {
		if got := v1alpha1.ModelMatches(test.name, test.model); got != test.want {
			t.Errorf("%q means %q: %v", test.name, test.model, got)
		}
	}
}

// A share's configuration is checked in the same way.
func TestConfigOfModels(t *testing.T) {
	config, err := v1alpha1.DecodeShareConfig([]byte(`{"apiVersion": "divvy.dev/v1alpha1", "kind": "ShareConfig", "gpuModels": "A100,H100", "gpuPrefer": "most-capable"}`))
	if err != nil {
		t.Fatal(err)
	}
	config.Default(0)
	if err := config.Validate(0); err != nil || config.GPUModels != "A100,H100" || config.GPUPrefer != v1alpha1.PreferMostCapable {
		t.Errorf("%+v: %v", config, err)
	}
	config.GPUModels, config.GPUPrefer = "A100|H100", "most-capable,A100"
	if err := config.Validate(0); err == nil || !strings.Contains(err.Error(), "gpu-models") || !strings.Contains(err.Error(), "stands alone") {
		t.Errorf("faults of both: %v", err)
	}
}
