package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// versionInfo is what `holdfast version` says of the build.
type versionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified,omitempty"` // built from a tree with changes of its own
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func thisVersion() versionInfo {
	v := versionInfo{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" && info.Main.Version != "(devel)" {
		v.Version = info.Main.Version
	}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			v.Revision = setting.Value
		case "vcs.time":
			v.Time = setting.Value
		case "vcs.modified":
			v.Modified = setting.Value == "true"
		}
	}
	return v
}

func newVersion(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this binary",
		Example: "  holdfast version\n  holdfast version -o json",
		Args:    exactly(),
		RunE: func(*cobra.Command, []string) error {
			v := thisVersion()
			return c.print(v, func(w io.Writer) error {
				text := "holdfast " + v.Version
				if v.Revision != "" {
					text += " (" + v.Revision[:min(12, len(v.Revision))]
					if v.Modified {
						text += ", modified"
					}
					text += ")"
				}
				_, err := fmt.Fprintf(w, "%s %s %s\n", text, v.Go, v.Platform)
				return err
			})
		},
	}
}
