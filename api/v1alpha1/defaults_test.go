package v1alpha1

import (
	"errors"
	"strings"
	"testing"
)

func TestNodeDefaults(t *testing.T) {
	for _, c := range []struct {
		defaults NodeDefaults
		fault    string
	}{
		{NodeDefaults{}, ""},
		{NodeDefaults{Cores: 5}, ""},
		{NodeDefaults{PolicyWeighted, 0}, ""},
		{NodeDefaults{PolicyWeighted, 10}, ""},
		{NodeDefaults{PolicyFixed, 1}, ""},
		{NodeDefaults{PolicyBurst, 100}, ""},
		{NodeDefaults{PolicyFixed, 0}, "give default cores too"},
		{NodeDefaults{PolicyBurst, 0}, "give default cores too"},
		{NodeDefaults{"fair", 5}, `policy "fair": use fixed, weighted or burst`},
		{NodeDefaults{PolicyFixed, 101}, "default cores 101: give 1 to 100"},
		{NodeDefaults{"", -1}, "default cores -1"},
	} {
		err := c.defaults.Validate()
		if (err == nil) != (c.fault == "") || err != nil && (!errors.Is(err, ErrDefaults) || !strings.Contains(err.Error(), c.fault)) {
			t.Errorf("%+v: %v, want %q", c.defaults, err, c.fault)
		}
	}
}

func TestLabelledDefaults(t *testing.T) {
	otherwise := NodeDefaults{PolicyFixed, 5}
	for name, c := range map[string]struct {
		labels map[string]string
		want   NodeDefaults
		fault  string
	}{
		"none":            {map[string]string{"divvy.dev/gpu.count": "1"}, otherwise, ""},
		"both":            {map[string]string{DefaultPolicyLabel: "burst", DefaultCoresLabel: "10"}, NodeDefaults{PolicyBurst, 10}, ""},
		"policy alone":    {map[string]string{DefaultPolicyLabel: "weighted"}, NodeDefaults{PolicyWeighted, 0}, ""},
		"cores alone":     {map[string]string{DefaultCoresLabel: "20"}, NodeDefaults{"", 20}, ""},
		"no cores":        {map[string]string{DefaultCoresLabel: "0"}, NodeDefaults{}, ""},
		"fixed alone":     {map[string]string{DefaultPolicyLabel: "fixed"}, NodeDefaults{}, "give default cores too"},
		"unknown policy":  {map[string]string{DefaultPolicyLabel: "0", DefaultCoresLabel: "5"}, NodeDefaults{}, `policy "0"`},
		"empty policy":    {map[string]string{DefaultPolicyLabel: "", DefaultCoresLabel: "5"}, NodeDefaults{}, "is empty"},
		"cores in words":  {map[string]string{DefaultCoresLabel: "all"}, NodeDefaults{}, `"all": give 1 to 100`},
		"cores below 0":   {map[string]string{DefaultCoresLabel: "-5"}, NodeDefaults{}, `"-5"`},
		"too many cores":  {map[string]string{DefaultCoresLabel: "101"}, NodeDefaults{}, `"101"`},
		"cores beyond 8b": {map[string]string{DefaultCoresLabel: "261"}, NodeDefaults{}, `"261"`},
	} {
		got, err := LabelledDefaults(c.labels, otherwise)
		if (err == nil) != (c.fault == "") || err != nil && (!errors.Is(err, ErrDefaults) || !strings.Contains(err.Error(), c.fault)) {
			t.Errorf("%s: %v, want %q", name, err, c.fault)
		}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestCompleteByDefaults(t *testing.T) {
	fixed, burst, weighted := NodeDefaults{PolicyFixed, 5}, NodeDefaults{PolicyBurst, 5}, NodeDefaults{PolicyWeighted, 5}
	for name, c := range map[string]struct {
		defaults NodeDefaults
		config   ShareConfig
		cores    int
		asked    bool
		policy   Policy
		want     int
	}{
		"nothing anywhere":               {NodeDefaults{}, ShareConfig{}, 0, false, PolicyWeighted, 0},
		"asked, no defaults":             {NodeDefaults{}, ShareConfig{}, 30, true, PolicyFixed, 30},
		"cores by default":               {NodeDefaults{Cores: 5}, ShareConfig{}, 5, false, PolicyFixed, 5},
		"fixed by default":               {fixed, ShareConfig{}, 5, false, PolicyFixed, 5},
		"burst by default":               {burst, ShareConfig{}, 5, false, PolicyBurst, 5},
		"weighted by default":            {weighted, ShareConfig{}, 5, false, PolicyWeighted, 5},
		"asked, burst by default":        {burst, ShareConfig{}, 30, true, PolicyBurst, 30},
		"a policy stands":                {fixed, ShareConfig{Policy: PolicyWeighted}, 5, false, PolicyWeighted, 5},
		"a weight stands":                {fixed, ShareConfig{Weight: 3}, 5, false, PolicyWeighted, 5},
		"a weight of 1 says nothing":     {fixed, ShareConfig{Weight: 1}, 5, false, PolicyFixed, 5},
		"allocated before":               {fixed, ShareConfig{}, 0, false, PolicyWeighted, 0},
		"asked for none":                 {burst, ShareConfig{}, 0, true, PolicyWeighted, 0},
		"allocated with other defaults":  {NodeDefaults{}, ShareConfig{}, 7, false, PolicyFixed, 7},
		"offline on a fixed node":        {fixed, ShareConfig{Class: ClassOffline}, 5, false, PolicyFixed, 5},
		"offline on a burst node":        {burst, ShareConfig{Class: ClassOffline}, 5, false, PolicyWeighted, 0},
		"offline, asked, burst node":     {burst, ShareConfig{Class: ClassOffline}, 30, true, PolicyFixed, 30},
		"offline, asked, weighted node":  {weighted, ShareConfig{Class: ClassOffline}, 30, true, PolicyFixed, 30},
		"offline and weighted are named": {fixed, ShareConfig{Class: ClassOffline, Policy: PolicyWeighted}, 5, false, PolicyWeighted, 0},
	} {
		config := c.config
		if got := c.defaults.Complete(&config, c.cores, c.asked); got != c.want || config.Policy != c.policy {
			t.Errorf("%s: %s with %d cores, want %s with %d", name, config.Policy, got, c.policy, c.want)
		}
	}
}

// TestEveryNodeServesWhatIsValid completes every configuration that may be asked for by every node's defaults: none
// becomes invalid or guarantees more than was counted, and once chosen, a policy is chosen again whatever the node's
// defaults have become.
func TestEveryNodeServesWhatIsValid(t *testing.T) {
	all := []NodeDefaults{{}, {"", 5}, {PolicyWeighted, 0}, {PolicyWeighted, 5}, {PolicyFixed, 5}, {PolicyBurst, 5}}
	tried := 0
	for _, config := range configs() {
		for _, asked := range []int{-1, 0, 5, 30, MaxCores} {
			full := config
			full.Default(max(asked, 0))
			if full.Validate(max(asked, 0)) != nil {
				continue // no claim may say so
			}
			for _, d := range all {
				for _, counted := range []int{0, 5, 7} { // by this node's defaults, and by earlier ones
					if asked >= 0 {
						counted = asked
					}
					tried++
					got := config
					cores := d.Complete(&got, counted, asked >= 0)
					if err := got.Validate(cores); err != nil || cores > counted {
						t.Errorf("%+v, asked %d, counted %d, on %+v: %+v with %d cores: %v", config, asked, counted, d, got, cores, err)
					}
					again := config
					if n := (NodeDefaults{Policy: got.Policy}).Complete(&again, counted, asked >= 0); n != cores || again != got {
						t.Errorf("%+v, asked %d, counted %d, on %+v: %+v with %d cores, and again %+v with %d", config, asked, counted, d, got, cores, again, n)
					}
				}
			}
		}
	}
	if tried < 500 {
		t.Errorf("only %d were valid", tried)
	}
}

// configs are configurations of all kinds, valid or not.
func configs() (all []ShareConfig) {
	for _, policy := range []Policy{"", PolicyFixed, PolicyWeighted, PolicyBurst} {
		for _, class := range []Class{"", ClassOnline, ClassOffline} {
			for _, weight := range []int{0, 1, 3} {
				for _, most := range []int{0, 50} {
					all = append(all, ShareConfig{Policy: policy, MaxCores: most, Weight: weight, Class: class})
				}
			}
		}
	}
	return all
}
