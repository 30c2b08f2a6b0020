package escape

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
)

// toldPercentage is what a daemon writes down when it tells its limit.
var toldPercentage = regexp.MustCompile(`Cmd:get_default_active_thread_percentage\n\[[^]]*\] ([0-9.]+)\n`)

// Percentage is the limit that a control daemon told last, by its log: while an agent gives it commands it takes nobody
// else's. The agent asks for the limit whenever it sets it.
func Percentage(log string) (float64, error) {
	text, err := os.ReadFile(filepath.Join(log, "control.log"))
	if err != nil {
		return 0, fmt.Errorf("read the control daemon's log: %w", err)
	}
	told := toldPercentage.FindAllSubmatch(text, -1)
	if len(told) == 0 {
		return 0, errors.New("read the control daemon's log: it told no limit")
	}
	return strconv.ParseFloat(string(told[len(told)-1][1]), 64)
}
