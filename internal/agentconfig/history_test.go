package agentconfig

import (
	"strings"
	"testing"
)

func TestHistory(t *testing.T) {
	var none *Config
	for text, want := range map[string]History{
		"":                                  {},
		"history: {}":                       {},
		"history: {record: false}":          {Off: true},
		"history: {record: true, days: 30}": {Days: 30},
		"history: {size: 1Mi, commands: program}": {Bytes: 1 << 20, Commands: CommandsProgram},
		"history: {days: 3660, commands: none}":   {Days: 3660, Commands: CommandsNone},
	} {
		if got := parse(t, text).History(); got != want {
			t.Errorf("%s: %+v", text, got)
		}
	}
	if none.History() != (History{}) {
		t.Error("without a file something is said of the history")
	}
	for text, want := range map[string]string{
		"history: yes":                   "must be a mapping",
		"history: {record: maybe}":       "must be true or false",
		"history: {record: [true]}":      "must be true or false",
		"history: {days: 0}":             "1 to 3660",
		"history: {days: 3661}":          "1 to 3660",
		"history: {size: 1Ki}":           "1Mi or more",
		"history: {size: 50%}":           "such as 48Gi",
		"history: {size: 16777216Ti}":    "",
		"history: {commands: arguments}": "whole, program, none",
		"history: {dir: /tmp}":           "unknown field",
	} {
		_, err := Parse("agent.yaml", []byte(head+text), lab{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
