
# The options of bake, serve, and saturate are those of the programs that these commands run.
function __zkv_complete_program
    set -l words (commandline --tokenize --cut-at-cursor --current-process)
    set -l current (commandline --current-token)
    # A quoted word is not lost if it is empty.
    complete --do-complete=(string join ' ' -- $argv[1] (string escape -- $words[3..-1]) "$current")
end
for program in 'bake baker' 'serve kv_store' 'saturate benchmarker'
    set -l names (string split ' ' $program)
    complete --command zkv --condition "__fish_seen_subcommand_from $names[1]" --no-files \
        --arguments "(__zkv_complete_program $names[2])"
end
