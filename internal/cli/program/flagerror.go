package program

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/divvy-gpu/divvy/internal/spelling"
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
		give := wanted[invalid.GetFlag().Value.Type()]
		if cause := errors.Unwrap(invalid); give == "" && cause != nil {
			// The cause may begin by naming the value, which has just been named.
			_, give, _ = strings.Cut(cause.Error(), strconv.Quote(invalid.GetValue())+": ")
		}
		if give != "" {
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

// meant is an error's text with cobra's suggestions of commands as this program makes its own: in the same line.
func meant(text string) string {
	said, suggested, found := strings.Cut(text, "\n\nDid you mean this?\n")
	if !found {
		return text
	}
	return said + ": did you mean " + strings.Join(strings.Fields(suggested), " or ") + "?"
}

// similar is the command's flag that a name is likely to be meant for, "" if none is near.
func similar(command *cobra.Command, name string) string {
	var flags []string
	command.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			flags = append(flags, f.Name)
		}
	})
	return spelling.Nearest(name, flags)
}
