package ent

//go:generate go run ./codegen
