// Package suspension decides what to do next so that a share's processes leave their GPUs, or come back. It is pure:
// docs/design/suspend.md has its rules.
package suspension
