package dialect

import (
	"errors"
	"strings"
	"testing"
)

func TestConfigRefuses(t *testing.T) {
	const head = "apiVersion: divvy.dev/v1alpha1\nkind: WebhookConfig\n"
	for text, fault := range map[string]string{
		"":  "it is",
		"{": "invalid webhook configuration",
		"apiVersion: divvy.dev/v1\nkind: WebhookConfig":                  "it is divvy.dev/v1 WebhookConfig",
		"apiVersion: divvy.dev/v1alpha1\nkind: Queue":                    "Queue, not",
		head + "dialect: {}":                                             `unknown field "dialect"`,
		head + "Dialects: {}":                                            `unknown field "Dialects"`,
		head + "dialects: {hami: {}, hami: {}}":                          `"hami"`,
		head + "dialects: [hami]":                                        "dialects",
		head + "dialects: {slurm: {}}":                                   `dialect "slurm" is not one of`,
		head + "dialects: {hami: {}, nvidia: {}}":                        "dialects hami and nvidia both own nvidia.com/gpu: turn one of them off",
		head + "dialects: {hami: {}, 4paradigm: {}}":                     "dialects 4paradigm and hami both own nvidia.com/gpu: turn one of them off",
		head + "dialects: {nvidia: {replicas: 1001}}":                    "dialect nvidia: replicas 1001: give 1 to 1000",
		head + "dialects: {nvidia: {replicas: -1}}":                      "dialect nvidia",
		head + "dialects: {nvidia: {Replicas: 4}}":                       `unknown field "Replicas"`,
		head + "dialects: {nvidia: {renamed: false}}":                    "renamed false says nothing without replicas",
		head + "dialects: {nvidia: 4}":                                   "dialect nvidia",
		head + "dialects: {hami: {memoryFactor: 0}}":                     "dialect hami: memoryFactor 0",
		head + "dialects: {hami: {corePolicy: weighted}}":                `dialect hami: corePolicy "weighted": use fixed or burst`,
		head + "dialects: {hami: {defaultMemory: 5e12}}":                 "dialect hami: defaultMemory",
		head + "dialects: {gpushare: {backend: mps}}":                    `dialect gpushare: backend "mps": use slice or timeslice`,
		head + "mode: slots\ndialects: {gpushare: {backend: timeslice}}": "dialect gpushare: backend timeslice needs mode claims",
		head + "scheduler: {}":                                           "scheduler: users: name 1 to 8, such as system:serviceaccount:divvy-system:divvy-scheduler",
		head + "scheduler: {users: []}":                                  "scheduler: users: name 1 to 8",
		head + "scheduler: {users: [a, b, c, d, e, f, g, h, i]}":         "scheduler: users: name 1 to 8",
		head + "scheduler: {users: [\"a'\"]}":                            `scheduler: users: "a'" is no user's name`,
		head + "scheduler: {users: [\"\"]}":                              `scheduler: users: "" is no user's name`,
		head + "scheduler: {user: a}":                                    `unknown field "scheduler.user"`,
		head + "scheduler: true":                                         "scheduler",
		head + "mode: slots\nscheduler: {users: [a]}":                    "scheduler: mode slots has no claims",
		head + "dialects: {plain: {gpu: 1}}":                             `dialect plain: unknown field "gpu"`,
	} {
		_, err := NewTranslator([]byte(text))
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), fault) {
			t.Errorf("%q: %v, want %q", text, err, fault)
		}
	}
}

func TestConfigAccepts(t *testing.T) {
	for _, dialects := range []string{"{}", "{plain: {}}", "{plain: }", "{plain: null, nvidia: {replicas: 4}}", "{hami: {memoryFactor: 10}, plain: {}}"} {
		newTranslator(t, dialects)
		if makers := newScheduled(t, dialects).Makers(); len(makers) != 1 || makers[0] != "system:serviceaccount:divvy-system:divvy-scheduler" {
			t.Errorf("makers %q", makers)
		}
	}
}

func TestOnlyEnabledDialectsAreRead(t *testing.T) {
	translator := newTranslator(t, "{plain: {}}")
	pod := limitsOf(t, "nvidia.com/gpu: 1")
	if got := translated(t, translator, pod, sixteen); got != "" || translator.Match(pod) {
		t.Errorf("a dialect that is off gives %s", got)
	}
	if !translator.Match(limitsOf(t, "divvy.dev/gpu: 1")) {
		t.Error("a dialect that is on is not seen")
	}
}
