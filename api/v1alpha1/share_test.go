package v1alpha1

import (
	"errors"
	"strings"
	"testing"
)

func TestTimeOfShares(t *testing.T) {
	config := func(policy Policy, most, weight int, class Class) ShareConfig {
		return ShareConfig{Policy: policy, MaxCores: most, Weight: weight, Class: class, Backend: BackendSlice}
	}
	for _, c := range []struct {
		cores      int
		config     ShareConfig
		fault      string // empty for none
		guaranteed int
	}{
		{30, config(PolicyFixed, 0, 1, ClassOnline), "", 30},
		{30, config(PolicyFixed, 0, 1, ClassOffline), "", 0},
		{30, config(PolicyBurst, 30, 1, ClassOnline), "", 30},
		{0, config(PolicyWeighted, 0, MaxWeight, ClassOffline), "", 0},
		{20, config(PolicyWeighted, 0, 3, ClassOnline), "", 20},
		{30, config(PolicyBurst, 29, 1, ClassOnline), "max cores 29", 30},
		{30, config(PolicyBurst, 101, 1, ClassOnline), "max cores 101", 30},
		{30, config(PolicyFixed, 50, 1, ClassOnline), "need policy burst", 30},
		{20, config(PolicyWeighted, 0, 1, ClassOffline), "guarantees nothing", 0},
		{20, config(PolicyBurst, 100, 1, ClassOffline), "guarantees nothing", 0},
		{0, config(PolicyFixed, 0, 1, ClassOnline), "add --cores", 0},
		{0, config(PolicyWeighted, 0, 0, ClassOnline), "weight 0", 0},
		{0, config(PolicyWeighted, 0, MaxWeight+1, ClassOnline), "weight 1001", 0},
		{0, config(PolicyWeighted, 0, 1, "batch"), `class "batch"`, 0},
		{0, config("best", 0, 1, ClassOnline), `policy "best"`, 0},
	} {
		err := c.config.Validate(c.cores)
		if (err == nil) != (c.fault == "") || err != nil && (!errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), c.fault)) {
			t.Errorf("%d cores, %+v: %v, want %q", c.cores, c.config, err, c.fault)
		}
		if got := c.config.Guaranteed(c.cores); got != c.guaranteed {
			t.Errorf("%d cores, %+v: guarantees %d, want %d", c.cores, c.config, got, c.guaranteed)
		}
	}
}

func TestDefaults(t *testing.T) {
	for _, c := range []struct {
		given ShareRequest
		want  ShareConfig
	}{
		{ShareRequest{}, ShareConfig{Policy: PolicyWeighted, Weight: 1, Class: ClassOnline, Backend: BackendSlice}},
		{ShareRequest{Cores: 30}, ShareConfig{Policy: PolicyFixed, Weight: 1, Class: ClassOnline, Backend: BackendSlice}},
		{ShareRequest{Cores: 30, ShareConfig: ShareConfig{Policy: PolicyBurst}}, ShareConfig{Policy: PolicyBurst, MaxCores: 100, Weight: 1, Class: ClassOnline, Backend: BackendSlice}},
		{ShareRequest{ShareConfig: ShareConfig{Weight: 3, Class: ClassOffline}}, ShareConfig{Policy: PolicyWeighted, Weight: 3, Class: ClassOffline, Backend: BackendSlice}},
		{ShareRequest{Isolate: IsolateNone, ShareConfig: ShareConfig{Backend: BackendMPS}}, ShareConfig{Policy: PolicyWeighted, Weight: 1, Class: ClassOnline, Backend: BackendMPS}},
		{ShareRequest{Isolate: IsolateBandwidth}, ShareConfig{Policy: PolicyWeighted, Weight: 1, Class: ClassOnline, Backend: BackendAuto}},
		{ShareRequest{Cores: 30, Isolate: IsolateFaults, ShareConfig: ShareConfig{Backend: BackendSlice}}, ShareConfig{Policy: PolicyFixed, Weight: 1, Class: ClassOnline, Backend: BackendSlice}},
		{ShareRequest{ShareConfig: ShareConfig{Backend: BackendTimeslice}}, ShareConfig{Policy: PolicyWeighted, Weight: 1, Class: ClassOnline, Backend: BackendTimeslice}},
	} {
		r := c.given
		r.Default()
		if r.ShareConfig != c.want || r.GPUs != 1 || r.Memory.IsZero() {
			t.Errorf("%+v became %+v", c.given, r)
		}
		if err := r.Validate(); err != nil {
			t.Errorf("the defaults of %+v are invalid: %v", c.given, err)
		}
	}
}

func TestValidateNamesTheFault(t *testing.T) {
	config := func(c ShareConfig) ShareRequest { return ShareRequest{ShareConfig: c} }
	for fault, request := range map[string]ShareRequest{
		`name "A b"`:               {Name: "A b"},
		`name "../x"`:              {Name: "../x"},
		"-1 GPUs":                  {GPUs: -1},
		"65 GPUs":                  {GPUs: 65},
		"only 1 named (0)":         {GPUs: 2, Among: []string{"0"}},
		`GPU "zero" is neither`:    {Among: []string{"1", "zero"}},
		`GPU "-1" is neither`:      {Among: []string{"-1"}},
		`GPU "01" is neither`:      {Among: []string{"01"}},
		`GPU "" is neither`:        {Among: []string{""}},
		`GPU "GPU-" is neither`:    {Among: []string{"GPU-"}},
		"GPU 3 is named twice":     {Among: []string{"3", "1", "3"}},
		"GPU gpu-AB is named":      {Among: []string{"GPU-ab", "gpu-AB"}},
		"is a MIG instance":        {Among: []string{"MIG-6e5f0d1c-0000-0000-0000-000000000000"}},
		"65 GPUs are named":        {GPUs: 1, Among: make([]string, 65)},
		"cores 101":                {Cores: 101},
		"cores -1":                 {Cores: -1},
		"policy fixed needs cores": config(ShareConfig{Policy: PolicyFixed}),
		"policy burst needs":       config(ShareConfig{Policy: PolicyBurst}),
		`policy "fair"`:            config(ShareConfig{Policy: "fair"}),
		"weight -1":                config(ShareConfig{Weight: -1}),
		"weight 1001":              config(ShareConfig{Weight: 1001}),
		"needs policy weighted":    {Cores: 10, ShareConfig: ShareConfig{Weight: 2}},
		`class "batch"`:            config(ShareConfig{Class: "batch"}),
		`backend "magic"`:          config(ShareConfig{Backend: "magic"}),
		"leave out cores":          {Cores: 10, ShareConfig: ShareConfig{Backend: BackendTimeslice}},
		"leave out the weight":     config(ShareConfig{Weight: 2, Backend: BackendTimeslice}),
		"by ceilings and not by":   {Cores: 10, ShareConfig: ShareConfig{Weight: 2, Backend: BackendMPS}},
		"leave out class offline":  config(ShareConfig{Class: ClassOffline, Backend: BackendTimeslice}),
		"cannot lend SMs":          {Cores: 10, ShareConfig: ShareConfig{Policy: PolicyBurst, Backend: BackendMPS}},
		"guarantees no cores":      {Cores: 10, ShareConfig: ShareConfig{Policy: PolicyWeighted, Backend: BackendMPS}},
		"not by weights":           config(ShareConfig{Weight: 2, Backend: BackendMPS}),
		"none gives way":           config(ShareConfig{Class: ClassOffline, Backend: BackendMPS}),
		"the client of one only":   {GPUs: 2, ShareConfig: ShareConfig{Backend: BackendMPS}},
		`isolate "noise"`:          {Isolate: "noise"},
		"does not isolate faults":  {Isolate: IsolateFaults, ShareConfig: ShareConfig{Backend: BackendMPS}},
		"unless hardware divides":  {Isolate: IsolateBandwidth, ShareConfig: ShareConfig{Backend: BackendSlice}},
	} {
		request.Default()
		err := request.Validate()
		if !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), fault) {
			t.Errorf("error %v, want one with %q", err, fault)
		}
	}
}

// A policy that a backend does not have is one fault, and no advice for that policy follows.
func TestPolicyThatABackendLacks(t *testing.T) {
	for _, b := range []Backend{BackendMIG, BackendMPS} {
		r := ShareRequest{ShareConfig: ShareConfig{Policy: PolicyBurst, Backend: b}}
		r.Default()
		if err := r.Validate(); err == nil || strings.Contains(err.Error(), "add --cores") || strings.Contains(err.Error(), "\n") {
			t.Errorf("backend %s: %v", b, err)
		}
	}
}

func TestValidateJoinsFaults(t *testing.T) {
	r := ShareRequest{Name: "?", Cores: 200, ShareConfig: ShareConfig{Class: "x"}}
	r.Default()
	if n := strings.Count(r.Validate().Error(), "\n") + 1; n != 3 {
		t.Errorf("%d faults in %v, want 3", n, r.Validate())
	}
}

func TestParseCores(t *testing.T) {
	for text, want := range map[string]int{"1": 1, "30": 30, "100%": 100, " 7 ": 7} {
		if got, err := ParseCores(text); err != nil || got != want {
			t.Errorf("ParseCores(%q) = %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "101", "1.5", "all", "%"} {
		if _, err := ParseCores(text); !errors.Is(err, ErrRequest) {
			t.Errorf("ParseCores(%q): %v, want ErrRequest", text, err)
		}
	}
}
