package program

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// wanted says what to give for a flag of a kind, whose own errors name functions of Go.
var wanted = map[string]string{
	"bool": "give true or false", "duration": "give a time such as 5s or 2m", "int": "give a whole number", "int64": "give a whole number",
	"uint": "give a whole number, 0 or more", "uint16": "give a whole number from 0 to 65535", "uint32": "give a whole number, 0 or more",
	"uint64": "give a whole number, 0 or more", "float64": "give a number",
}

// flagError is an error in a flag as the caller reads it: with what to give, or which flag may be meant.
func flagError(command *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		if give := wanted[invalid.GetFlag().Value.Type()]; give != "" {
			return Usage(fmt.Errorf("invalid argument %q for \"--%s\" flag: %s", invalid.GetValue(), invalid.GetFlag().Name, give))
		}
	}
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" {
		if meant := similar(command, unknown.GetSpecifiedName()); meant != "" {
			return Usage(fmt.Errorf("%w: did you mean --%s?", err, meant))
		}
	}
	return Usage(err)
}

// similar is the command's flag that begins as a name does or else differs from it by the fewest letters, "" if none is near.
func similar(command *cobra.Command, name string) string {
	const near = 2
	found, least := "", near+1
	command.Flags().VisitAll(func(f *pflag.Flag) {
		far := distance(strings.ToLower(name), f.Name)
		if len(name) > 1 && strings.HasPrefix(f.Name, strings.ToLower(name)) {
			far = 0
		}
		if !f.Hidden && far < least {
			found, least = f.Name, far
		}
	})
	return found
}

// distance is how many letters must be added, removed or changed to make one word of another; what is far is only said to be.
func distance(a, b string) int {
	const far = 100
	if len(a) > far || len(b) > far {
		return far
	}
	row := make([]int, len(b)+1)
	for i := range row {
		row[i] = i
	}
	for i := range a {
		before := row[0]
		row[0] = i + 1
		for j := range b {
			changed := before
			if a[i] != b[j] {
				changed++
			}
			before = row[j+1]
			row[j+1] = min(changed, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
