package v1alpha1

import (
	"errors"
	"fmt"
	"strconv"
)

// ErrDefaults marks every error of [NodeDefaults.Validate] and [LabelledDefaults].
var ErrDefaults = errors.New("invalid defaults of the node")

// NodeDefaults are the settings that a node gives to shares that leave them out. The
// zero value leaves everything to [ShareConfig.Default].
type NodeDefaults struct {
	// Policy is that of shares that name none; left out it is fixed for shares
	// that have cores, weighted for others.
	Policy Policy
	// Cores is the percentage of GPU time of shares that ask for none, 0 to
	// MaxCores. The scheduler counts it as if it had been asked.
	Cores int
}

// Validate returns every fault joined into one error that wraps [ErrDefaults],
// or nil.
func (d NodeDefaults) Validate() error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("%w: %w", ErrDefaults, fmt.Errorf(format, args...)))
	}
	if d.Cores < 0 || d.Cores > MaxCores {
		fault("default cores %d: give 1 to %d percent of a GPU's time, or 0 for none", d.Cores, MaxCores)
	}
	switch d.Policy {
	case "", PolicyWeighted:
	case PolicyFixed, PolicyBurst:
		if d.Cores == 0 {
			fault("default policy %s needs cores for shares that ask for none: give default cores too, 1 to %d, such as 5 for at most 20 shares of a GPU", d.Policy, MaxCores)
		}
	default:
		fault("default policy %q: use fixed, weighted or burst", d.Policy)
	}
	return errors.Join(faults...)
}

// LabelledDefaults returns the defaults that a node's labels name. If either label is
// set, the labels replace both settings of otherwise.
func LabelledDefaults(labels map[string]string, otherwise NodeDefaults) (NodeDefaults, error) {
	policy, hasPolicy := labels[DefaultPolicyLabel]
	text, hasCores := labels[DefaultCoresLabel]
	if !hasPolicy && !hasCores {
		return otherwise, nil
	}
	d := NodeDefaults{Policy: Policy(policy)}
	if hasPolicy && policy == "" {
		return NodeDefaults{}, fmt.Errorf("%w: label %s is empty: use fixed, weighted or burst, or remove it", ErrDefaults, DefaultPolicyLabel)
	}
	if hasCores {
		n, err := strconv.ParseUint(text, 10, 8)
		if err != nil || n > MaxCores {
			return NodeDefaults{}, fmt.Errorf("%w: label %s: %q: give 1 to %d percent of a GPU's time, or 0 for none", ErrDefaults, DefaultCoresLabel, text, MaxCores)
		}
		d.Cores = int(n)
	}
	if err := d.Validate(); err != nil {
		return NodeDefaults{}, fmt.Errorf("labels of the node: %w", err)
	}
	return d, nil
}

// Complete fills in what was left out of the config of a share that was given this
// many cores, and returns how many cores it has. Asked is true if the share asked for
// cores itself. An offline share has no guarantee, so default cores are dropped,
// unless its policy is fixed, where they are a cap.
func (d NodeDefaults) Complete(c *ShareConfig, cores int, asked bool) int {
	if c.Policy == "" {
		c.Policy = d.policy(c, cores, asked)
	}
	if c.Class == ClassOffline && c.Policy != PolicyFixed && !asked {
		cores = 0
	}
	c.Default(cores)
	return cores
}

// policy returns the policy of a share that names none. The share's other settings
// come first: a weight needs policy weighted, and offline cores are a cap.
func (d NodeDefaults) policy(c *ShareConfig, cores int, asked bool) Policy {
	var otherwise ShareConfig
	otherwise.Default(cores)
	switch {
	case c.Weight > 1 && !asked:
		return PolicyWeighted
	case cores == 0 || d.Policy == "":
		// Asked for no cores, or allocated before the node had defaults.
		return otherwise.Policy
	case c.Class == ClassOffline && asked:
		return PolicyFixed
	case c.Class == ClassOffline && d.Policy != PolicyFixed:
		return PolicyWeighted
	}
	return d.Policy
}
