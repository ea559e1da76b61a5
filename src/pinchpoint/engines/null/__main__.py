from pinchpoint.engines.null.start import main

main()
