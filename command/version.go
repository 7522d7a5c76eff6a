package command

import (
	"encoding/json"
	"fmt"

	"tideline/server"
)

// Version prints the version of the program.
type Version struct {
	JSON bool `env:"-" name:"json" help:"As a JSON object."`
}

// Run prints version, commit, Go and platform.
func (v Version) Run(console server.Console) error {
	build := server.ThisBuild()
	if v.JSON {
		return json.NewEncoder(console.Out).Encode(build)
	}
	_, err := fmt.Fprintln(console.Out, "tideline", build)
	return err
}
