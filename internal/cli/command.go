package cli

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sqlnative/locks/internal/dsn"
)

// HelpCommand is cobra's, but for an unknown topic, which is an error.
func HelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Help about any command",
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return fmt.Errorf("there is no command %q", args)
			}
			return about.Help()
		},
	}
}

// Version says what the binary was built from.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown)"
	}
	v := info.Main.Version
	if v == "" {
		v = "(devel)"
	}
	text := v + " " + info.GoVersion
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			text += " " + s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			text += " modified"
		}
	}
	return text
}

// MisplacedDSN is the number of the first argument that has a password in it and
// is not the value of --dsn; 0 if there is none.
func MisplacedDSN(args []string) int {
	for i, arg := range args {
		if i > 0 && args[i-1] == "--dsn" || strings.HasPrefix(arg, "--dsn=") {
			continue
		}
		if dsn.HoldsPassword(arg) {
			return i + 1
		}
	}
	return 0
}
