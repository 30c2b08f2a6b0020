package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/cli/columns"
	"github.com/divvy-gpu/divvy/internal/pluginfile"
)

func newConvert(a *app) *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:   "convert FILE",
		Short: "Say what becomes of a configuration of NVIDIA's device plugin",
		Long: `Read a configuration of NVIDIA's device plugin and GPU feature discovery (version:
v1), - for standard input, and say what each of its keys becomes: as an agent.yaml
or as values of the chart, each with the keys as comments, or as a list of the
keys. The exit status is 1 if a key is refused, or if the file is invalid. Keys
without effect are told and are no failure.`,
		Example: `  divvy convert config.yaml
  divvy convert -o values config.yaml > values.yaml
  kubectl get configmap nvidia-plugin-configs -o jsonpath='{.data.default}' |
    divvy convert -o table -`,
		Args: argsOf(1, 1, "one file"),
		RunE: func(command *cobra.Command, args []string) error {
			return a.convert(command.InOrStdin(), args[0], output)
		},
	}
	command.Flags().StringVarP(&output, "output", "o", "agent", "`FORM`: agent, values, table or json")
	return command
}

func (a *app) convert(in io.Reader, name, output string) error {
	write, ok := converted[output]
	if !ok {
		return usage(fmt.Errorf("unknown output %q: choose agent, values, table or json", output))
	}
	text, err := readFile(in, name)
	if err != nil {
		return err
	}
	config, err := pluginfile.Parse(name, text)
	if err != nil {
		return err
	}
	if err := write(a.out, name, text, config); err != nil {
		return err
	}
	return config.Err(name)
}

// readFile reads a file, or standard input for -, up to a byte more than is allowed.
func readFile(in io.Reader, name string) ([]byte, error) {
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("read a device-plugin file: %w", err)
		}
		defer file.Close() //nolint:errcheck // only read
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, pluginfile.MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read device-plugin file: %w", err)
	}
	return text, nil
}

// converted writes a configuration in each form.
var converted = map[string]func(w io.Writer, name string, text []byte, c *pluginfile.Config) error{
	"agent": func(w io.Writer, name string, _ []byte, c *pluginfile.Config) error {
		_, err := io.WriteString(w, c.Agent(name))
		return err
	},
	"values": func(w io.Writer, name string, text []byte, c *pluginfile.Config) error {
		_, err := io.WriteString(w, c.Values(name, text))
		return err
	},
	"table": func(w io.Writer, _ string, _ []byte, c *pluginfile.Config) error { return printKeys(w, c.Notes) },
	"json": func(w io.Writer, _ string, _ []byte, c *pluginfile.Config) error {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(struct {
			Keys []pluginfile.Note `json:"keys"`
		}{append([]pluginfile.Note{}, c.Notes...)}); err != nil {
			return fmt.Errorf("write JSON: %w", err)
		}
		return nil
	},
}

func printKeys(w io.Writer, notes []pluginfile.Note) error {
	t := &columns.Table{}
	t.Row("LINE", "KEY", "VALUE", "OUTCOME", "BECOMES")
	for _, n := range notes {
		t.Row(strconv.Itoa(n.Line), n.Field, n.Value, string(n.Outcome), n.Text)
	}
	var b strings.Builder
	t.Print(&b)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}
