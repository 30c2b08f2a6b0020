// Package task is what the guest is told to run.
package task

import (
	"encoding/json"
	"fmt"
	"os"
)

// Task is one program with its surroundings in the guest.
type Task struct {
	Dir         string   `json:"dir"`
	Arguments   []string `json:"arguments"`
	Environment []string `json:"environment"`
}

// Encode returns it as Read has it.
func (t Task) Encode() ([]byte, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("write the guest's task: %w", err)
	}
	return text, nil
}

// Read reads a task from a file. It returns an error where the task names no program.
func Read(path string) (Task, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the one file of the guest's
	if err != nil {
		return Task{}, fmt.Errorf("read the guest's task: %w", err)
	}
	var t Task
	if err := json.Unmarshal(text, &t); err != nil {
		return Task{}, fmt.Errorf("read the guest's task: %w", err)
	}
	if len(t.Arguments) == 0 {
		return Task{}, fmt.Errorf("read the guest's task: it names no program")
	}
	return t, nil
}
